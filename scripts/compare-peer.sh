#!/bin/sh
# Runs forge and another engine ("the peer") in turn on the same model files and prints, and with -o writes, a
# Markdown table of ratios for SPEED.md. Nothing of the peer is part of this tree: where it lies is told here.
#
#     PEER_PYTHON=peer-venv/bin/python PEER_BENCH=bench_peer.py scripts/compare-peer.sh [-o TABLE.md] MODEL.gguf ...
#
# FORGE        the program (build/forge)
# PEER_PYTHON  a Python that can import PEER_MODULE (llama_cpp); without it only forge is measured
# PEER_BENCH   a program for it: `PEER_BENCH MODEL TEST -t THREADS -r 1` prints one JSON object with
#              "tok_s": N after the test's name, `PEER_BENCH MODEL --start -t THREADS` one with "start_ms": N
# DEVICES      forge's, a list (cpu)
# TESTS        a list of ppN, tgN, tgNxB, each with or without @dDEPTH; start: ms of a process to the first token
#              after a prompt of 5, the peer's Python left out; memory: MiB at most resident in a run of tg64, less
#              what a Python that only imports the peer takes (pp512 pp32 tg64 tg32@d4096 tg32x8 start memory)
# ROUNDS       of each test, peer first, then each device; the ratio is the median of the rounds' ratios (3)
# THREADS      of both (all cores)
# ARGS         more flags for forge (none)
# RUN          what to put before each measurement, such as a command that keeps other work away (nothing)
#
# What is absent is skipped, and said. One thing at a time runs; figures of different rounds mean little, only ratios do.
set -u
LC_ALL=C
export LC_ALL
FORGE=${FORGE:-build/forge}
PEER_PYTHON=${PEER_PYTHON:-}
PEER_BENCH=${PEER_BENCH:-}
PEER_MODULE=${PEER_MODULE:-llama_cpp}
DEVICES=${DEVICES:-cpu}
TESTS=${TESTS:-pp512 pp32 tg64 tg32@d4096 tg32x8 start memory}
ROUNDS=${ROUNDS:-3}
THREADS=${THREADS:-$(getconf _NPROCESSORS_ONLN)}
ARGS=${ARGS:-}
RUN=${RUN:-}

say() {
    echo "compare-peer: $*" >&2
}

table=
while getopts o:h flag; do
    case $flag in
    o) table=$OPTARG ;;
    *)
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || {
    say "no model is named; -h tells more"
    exit 2
}
[ -x "$FORGE" ] || {
    say "$FORGE is no program; set FORGE"
    exit 2
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

peer=yes
if [ -z "$PEER_PYTHON" ] || [ ! -f "$PEER_BENCH" ]; then
    say "no peer: set PEER_PYTHON and PEER_BENCH; only forge is measured"
    peer=no
elif ! version=$("$PEER_PYTHON" -c "import $PEER_MODULE as m; print('$PEER_MODULE', m.__version__)" 2>"$work/err"); then
    say "no peer: $PEER_PYTHON cannot import $PEER_MODULE ($(tail -n 1 "$work/err")); only forge is measured"
    peer=no
fi

# The number after "KEY": in a JSON text on standard input, the last one of that key.
number() {
    tr -d '\n' | sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p"
}

# ---- one measurement each: a number on standard output, nothing when it failed ----

peer_speed() { # MODEL TEST
    # shellcheck disable=SC2086  # RUN and ARGS are lists of words, here and below
    $RUN "$PEER_PYTHON" "$PEER_BENCH" "$1" "$2" -t "$THREADS" -r 1 2>"$work/err" | number tok_s
}

peer_start() {
    # shellcheck disable=SC2086
    $RUN "$PEER_PYTHON" "$PEER_BENCH" "$1" --start -t "$THREADS" 2>"$work/err" | number start_ms
}

# MiB at most resident in a child process.
resident() {
    # shellcheck disable=SC2086
    $RUN "$PEER_PYTHON" -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)' "$@" 2>"$work/err"
}

peer_memory() {
    all=$(resident "$PEER_PYTHON" "$PEER_BENCH" "$1" tg64 -t "$THREADS" -r 1)
    idle=$(resident "$PEER_PYTHON" -c "import $PEER_MODULE")
    [ -n "$all" ] && [ -n "$idle" ] && awk "BEGIN { print $all - $idle }"
}

# The flags of bench for a test's name.
flags_of() {
    echo "$1" | sed -n 's/^\([pt][pg]\)\([0-9]*\)\(x[0-9]*\)\{0,1\}\(@d[0-9]*\)\{0,1\}$/\1 \2 \3 \4/p' | {
        read -r kind n rest
        depth=0 batch=1
        for word in $rest; do
            case $word in
            x*) batch=${word#x} ;;
            @d*) depth=${word#@d} ;;
            esac
        done
        case ${kind:-} in
        pp) echo "-p $n -n 0 -d $depth" ;;
        tg) echo "-p 0 -n $n -d $depth --batch $batch" ;;
        esac
    }
}

forge_speed() { # MODEL TEST DEVICE: tokens/s and the share of the limit
    # shellcheck disable=SC2086,SC2046
    $RUN "$FORGE" bench -m "$1" --device "$3" --threads "$THREADS" -r 1 --csv -q $ARGS $(flags_of "$2") 2>"$work/err" |
        awk -F, 'NR > 1 { print $2, $5 }'
}

forge_start() {
    # shellcheck disable=SC2086,SC2016
    $RUN sh -c 'start=$(date +%s%N)
"$@" >/dev/null || exit 1
end=$(date +%s%N)
case $start in *N) exit 1 ;; esac
echo $(((end - start) / 1000000))' sh "$FORGE" generate -m "$1" --device "$3" --threads "$THREADS" --ids 1,2,3,4,5 -n 1 \
        -q $ARGS 2>"$work/err"
}

forge_memory() {
    # shellcheck disable=SC2086
    $RUN "$FORGE" generate -m "$1" --device "$3" --threads "$THREADS" --ids 1,2,3,4,5 -n 64 --ctx 128 --ignore-eos --json -q \
        $ARGS 2>"$work/err" | number peak_rss_bytes | awk 'NF { print $1 / 1048576 }'
}

# ---- the rounds ----

failed() { # WHO MODEL TEST
    say "$1 failed: $2, $3: $(tail -n 1 "$work/err" 2>/dev/null)"
}

# A row: MODEL TEST DEVICE, from a file of lines "PEER FORGE SHARE", "-" where there is none. For start and memory less
# is better, so that the ratio is the peer's to forge's.
row() {
    awk -v name="$(basename "$1")" -v test="$2" -v device="$3" '
        function median(v, n,  i, j, t) {
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
            return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
        }
        $1 != "-" { peer[++n_peer] = $1 }
        $2 != "-" { forge[++n_forge] = $2 }
        $3 != "-" { share[++n_share] = $3 }
        $1 > 0 && $2 > 0 { ratio[++n_ratio] = less ? $1 / $2 : $2 / $1 }
        BEGIN { less = test == "start" || test == "memory" }
        END {
            unit = test == "start" ? " ms" : test == "memory" ? " MiB" : ""
            printf "| %s | %s | %s | %s | %s | %s | %s |\n", name, test, device,
                n_forge ? sprintf("%.1f%s", median(forge, n_forge), unit) : "failed",
                n_share ? sprintf("%.0f %%", 100 * median(share, n_share)) : "",
                n_peer ? sprintf("%.1f%s", median(peer, n_peer), unit) : "",
                n_ratio ? sprintf("%.2f (%.2f to %.2f)", median(ratio, n_ratio), ratio[1], ratio[n_ratio]) : ""
        }' "$work/$3"
}

measure() { # MODEL TEST
    kind=speed
    case $2 in
    start | memory) kind=$2 ;;
    *) [ -n "$(flags_of "$2")" ] || {
        say "skipped: $2 is no test"
        return
    } ;;
    esac
    for device in $DEVICES; do
        : >"$work/$device"
    done
    round=0
    while [ $round -lt "$ROUNDS" ]; do
        round=$((round + 1))
        theirs=-
        if [ $peer = yes ]; then
            theirs=$("peer_$kind" "$1" "$2")
            [ -n "$theirs" ] || failed "the peer" "$1" "$2"
        fi
        for device in $DEVICES; do
            ours=$("forge_$kind" "$1" "$2" "$device")
            [ -n "$ours" ] || failed forge "$1" "$2"
            # shellcheck disable=SC2086  # "SPEED SHARE", or one of them, or nothing
            set -- "$1" "$2" ${ours:--}
            echo "${theirs:--} $3 ${4:--}" >>"$work/$device"
            set -- "$1" "$2"
        done
    done
    for device in $DEVICES; do
        row "$1" "$2" "$device" | tee -a "$work/table"
    done
}

model_name() {
    sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1
}

{
    echo "$(date +%Y-%m-%d), $(model_name), $THREADS threads; $("$FORGE" --version | head -n 1)${ARGS:+ ($ARGS)};" \
        "$([ $peer = yes ] && echo "peer: $version" || echo "no peer"); medians of $ROUNDS rounds in turn"
    echo
    echo "| model | test | device | forge | of the limit | peer | ratio |"
    echo "| --- | --- | --- | ---: | ---: | ---: | ---: |"
} | tee "$work/table"
for model; do
    if [ ! -e "$model" ]; then
        say "skipped: $model is not there"
        continue
    fi
    for test in $TESTS; do
        measure "$model" "$test"
    done
done
[ -z "$table" ] || cp "$work/table" "$table"
