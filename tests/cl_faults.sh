#!/bin/sh
# Makes OpenCL calls of a generation of three tokens fail, each once, and holds the program to it: no crash,
# no hang, no object left over, and either the same text as without (recovered) or exit status 1 with a
# message that names the device and the code.
#
#     FORGE=build/forge tests/cl_faults.sh
#
# By default a few calls of each function, the codes in turn.  FORGE_SWEEP=calls fails every call once (half an hour),
# FORGE_SWEEP=all every call with every code (hours).  Of a function called more often than FORGE_SWEEP_MOST (300)
# so many calls are taken, evenly spread: kernels' arguments, of which warm-up sets the same thousands of times.
# FORGE_CLFAULT_LIB names a built layer; else CC (default cc) builds it.  Status 77: skipped.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
FORGE=${FORGE:-./forge}
case $FORGE in
/*) ;;
*) FORGE=$(pwd)/$FORGE ;;
esac
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
}

layer=${FORGE_CLFAULT_LIB:-$tmp/libclfault.so}
[ -f "$layer" ] || sh "$here/clfault/build.sh" "$layer" 2>"$tmp/cc" ||
    skip "the layer does not build: $(head -n 1 "$tmp/cc")"
unset FORGE_MODEL FORGE_WEIGHTS OPENCL_LAYERS FORGE_CLFAULT FORGE_CLFAKE FORGE_CLSPOIL FORGE_CLSKIP FORGE_CLGROUP \
    FORGE_CLCOUNT FORGE_CLINT POCL_DEVICES
XDG_CACHE_HOME=$tmp/cache
FORGE_CLSTRICT=1
export XDG_CACHE_HOME FORGE_CLSTRICT
passed=0
failed=0
runs=0
recovered=0
sweep=${FORGE_SWEEP:-few}
most=${FORGE_SWEEP_MOST:-300}
limit=$((300 * ${CK_TIMEOUT_MULTIPLIER:-1})) # seconds of one run: it hangs
device=opencl

# run NAME=VALUE... -- FLAGS: one generation below the layer; its status in rc
run() {
    vars=
    while [ "$1" != -- ]; do
        vars="$vars $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # a list of settings without blanks
    env OPENCL_LAYERS="$layer" $vars timeout "$limit" "$FORGE" generate --device "$device" -p Hello -n 3 "$@" \
        >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
}

bad() {
    failed=$((failed + 1))
    echo "FAIL $1: $(grep -v '^clfault' "$tmp/err" | tail -n 1)"
}

# judge WHAT CODE NAMED: holds the run just made to the law above
judge() {
    runs=$((runs + 1))
    case $rc in
    0) if cmp -s "$tmp/good" "$tmp/out"; then
        recovered=$((recovered + 1))
        passed=$((passed + 1))
        return
    fi
        bad "$1: status 0 with other text" ;;
    1) if ! grep -q '^forge: error: .*[oO]pen[cC][lL]' "$tmp/err"; then
        bad "$1: no message that names the device"
    elif [ "$3" = yes ] && ! grep -q "^forge: error: .*($2)" "$tmp/err"; then
        bad "$1: no message with the code $2"
    else
        passed=$((passed + 1))
        return
    fi ;;
    99) bad "$1: objects left over: $(grep LEAK "$tmp/err")" ;;
    124) bad "$1: hangs" ;;
    *) bad "$1: status $rc" ;;
    esac
}

# sweep FLAGS: fails calls as counted in $tmp/counts
sweep() {
    turn=0
    while read -r fn calls <&3; do
        case $fn in
        clRelease* | clRetain*) continue ;; # a failure there says that nothing is left to release
        clGet*) named=no ;;                 # a question without an answer has a default
        *) named=yes ;;
        esac
        few=4
        [ "$sweep" = few ] || few=$most
        step=$(((calls + few - 1) / few))
        i=1
        while [ "$i" -le "$calls" ]; do
            n=0
            for code in -4 -5 -6 -11 -54; do
                n=$((n + 1))
                [ "$sweep" = all ] || [ $((turn % 5 + 1)) -eq $n ] || continue
                run FORGE_CLFAULT="$fn:$i:$code" -- "$@"
                grep -q "^clfault: $fn call $i" "$tmp/err" || [ "$rc" -ne 0 ] || echo "note: $fn call $i was not made"
                judge "$fn call $i of $calls, $code" "$code" "$named"
            done
            turn=$((turn + 1))
            i=$((i + step))
        done
    done 3<"$tmp/counts"
}

run -- --no-selftest
grep -q '^clfault:' "$tmp/err" || skip "the loader does not load layers"
if [ $rc -ne 0 ]; then
    grep -q 'no OpenCL' "$tmp/err" && skip "$(grep 'no OpenCL' "$tmp/err" | head -n 1)"
    cat "$tmp/err"
    bad "the command fails by itself, status $rc"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
cp "$tmp/out" "$tmp/good"

ok() { # WHAT TEST...
    what=$1
    shift
    runs=$((runs + 1))
    if "$@"; then
        passed=$((passed + 1))
    else
        bad "$what, status $rc"
    fi
}
is_good() { [ "$rc" -eq 0 ] && cmp -s "$tmp/good" "$tmp/out"; }
good_and() { is_good && grep -q -e "$1" "$tmp/err"; }
good_without() { is_good && ! grep -q -e "$1" "$tmp/err"; }
error_with() { [ "$rc" -eq 1 ] && grep -q -e "^forge: error: .*$1" "$tmp/err"; }

again='open.* again'
error_again() { error_with "\($again.*($1)\|($1).*$again\)"; }

# ---- whoever asks for the CPU does not wake a driver ----
device=cpu
run FORGE_CLCOUNT="$tmp/none" --
ok "device cpu: calls of OpenCL" good_without clfault
ok "device cpu: calls of OpenCL" [ ! -e "$tmp/none" ]
device=opencl

# ---- each call fails once: with compiled kernels on disk, then from their text ----
run FORGE_CLCOUNT="$tmp/counts" -- --no-selftest
launches=$(awk '$1 == "clEnqueueNDRangeKernel" { print $2 }' "$tmp/counts") # of which the last tenth are in the last step
late=$((launches * 9 / 10))
sweep --no-selftest
run FORGE_CLCOUNT="$tmp/all" -- --no-selftest --no-kernel-cache
grep -E '^(clCreateProgramWithSource|clBuildProgram|clCreateKernel|clGetProgram.*) ' "$tmp/all" >"$tmp/counts"
sweep --no-selftest --no-kernel-cache

# ---- a device that goes on failing: the error, once ----
for rule in clEnqueueNDRangeKernel:$late+:-5 clEnqueueReadBuffer:4+:-36 clEnqueueWriteBuffer:30+:-4 clSetKernelArg:$((5 * late))+:-6; do
    run FORGE_CLFAULT="$rule" -- --no-selftest
    code=${rule##*:}
    ok "$rule" error_again "$code"
done
run FORGE_CLFAULT="clEnqueueNDRangeKernel:$late:-5,clEnqueueNDRangeKernel:$((late + 1)):-5,clCreateContext:2+:-6" -- --no-selftest
ok "the device cannot be opened again" error_with '(-5).*opening the devices again: .*(-6)'

# ---- several at once: each ends with the text that it has alone, or with the error; the others do not notice ----
n=0
while read -r prompt; do
    n=$((n + 1))
    echo "{\"prompt\":\"$prompt\",\"max_tokens\":$((6 + n % 3 * 4)),\"temp\":$((n % 2)),\"seed\":$n}"
done >"$tmp/jobs" <<EOF
Hello
The capital of France is
Once upon a time
A
One, two, three
In the beginning
It is
Hello there
The end of
My name is
Water
Two cats and
EOF
# jobs SEQUENCES RULE FLAGS: all of them; lines up to "device" are the text, the ids and why it ended
jobs() {
    seqs=$1
    rule=$2
    shift 2
    env OPENCL_LAYERS="$layer" FORGE_CLFAULT="$rule" timeout "$limit" "$FORGE" generate --device "$device" --no-selftest \
        -f "$tmp/jobs" --jsonl --max-seqs "$seqs" "$@" >"$tmp/lines" 2>"$tmp/err" </dev/null
    rc=$?
    grep -v '"error":' "$tmp/lines" | sed 's/,"device":.*//' >"$tmp/out"
}
all_right() { [ "$rc" -eq 0 ] && cmp -s "$tmp/alone" "$tmp/out"; }
all_again() { all_right && grep -q -e "$again" "$tmp/err"; }
# Some of them end with the code, the others as alone, and each has its line.
some_right() {
    [ "$rc" -eq 1 ] && [ "$(grep -c "\"error\":.*($1)" "$tmp/lines")" -ge 1 ] && [ -s "$tmp/out" ] &&
        [ "$(grep -c . "$tmp/lines")" -eq "$n" ] && ! grep -qvxFf "$tmp/alone" "$tmp/out"
}
jobs 1 none
cp "$tmp/out" "$tmp/alone"
jobs 4 none
ok "$n requests, 4 at once" all_right
for rule in clEnqueueReadBuffer:9:-5 clEnqueueReadBuffer:20:-36 clEnqueueNDRangeKernel:$((2 * launches)):-6; do
    jobs 4 $rule
    ok "$n requests, $rule" all_again
    jobs 4 $rule --draft "$here/../data/forge-tiny" --draft-n 3
    ok "$n requests with a draft model, $rule" all_again
done
jobs 4 clEnqueueReadBuffer:12:-5,clEnqueueReadBuffer:18:-5
ok "$n requests, of which some meet a second failure" some_right -5

# ---- a watchdog ends what takes too long: fewer rows at once ----
long="The capital of France is and the rest of it is a text that goes on for so long that its steps are of many rows"
run -- --no-selftest -p "$long $long"
cp "$tmp/out" "$tmp/want"
run FORGE_CLBIG=3500 -- --no-selftest -p "$long $long" # the logits of one row take 3072
ok "launches over 3500 work-items fail" [ "$rc" -eq 0 ]
ok "launches over 3500 work-items fail: text" cmp -s "$tmp/want" "$tmp/out"
ok "launches over 3500 work-items fail: told" grep -q 'at most .* rows from now on' "$tmp/err"
run -- --no-selftest -p "$long"
cp "$tmp/out" "$tmp/want"
run FORGE_CLBIG=100 -- --no-selftest -p "$long"
ok "launches over 100 work-items fail" error_again -5

# ---- CLBlast: what it refuses or computes wrongly is computed by own kernels ----
cp "$tmp/good" "$tmp/hello"
cp "$tmp/want" "$tmp/good"
blast="--no-selftest --gemm clblast -v"
by_blast='^forge: ran on.*+clblast: linear'
# shellcheck disable=SC2086 # a list of flags
run -- $blast -p "$long"
if [ "$rc" -eq 0 ] && grep -q "$by_blast" "$tmp/err"; then
    ok "CLBlast: text" good_and "$by_blast"
    # shellcheck disable=SC2086
    run FORGE_CLCOUNT="$tmp/all" -- $blast -p "$long"
    # what it calls itself, and what only its check does
    grep -E '^(clCreateBuffer|clCreateKernel|clCreateProgram.*|clBuildProgram|clSetKernelArg|clFinish|clEnqueue.*) ' \
        "$tmp/all" >"$tmp/counts"
    # shellcheck disable=SC2086
    sweep $blast -p "$long"
    # Every launch from one on: the first are warm-up's, the last those of steps whose classes are settled.
    with_blast=$(sed -n 's/^clEnqueueNDRangeKernel //p' "$tmp/all")
    for tenth in 1 3 5 7 9; do
        # shellcheck disable=SC2086
        run FORGE_CLFAULT="clEnqueueNDRangeKernel:$((with_blast * tenth / 10))+:-5" -- $blast -p "$long"
        ok "CLBlast, every launch from $tenth tenths on" error_again -5
    done
    # shellcheck disable=SC2086
    run FORGE_CLSKIP=Xgemm,XgemmDirectNN,XgemmDirectNT,XgemmDirectTN,XgemmDirectTT -- $blast -p "$long"
    ok "CLBlast computes wrongly" good_and 'CLBlast is not used for .*its result is wrong'
    ok "CLBlast computes wrongly" good_without "$by_blast"
    # shellcheck disable=SC2086
    run FORGE_CLBIG=4000 -- $blast -p "$long"
    ok "CLBlast, launches over 4000 work-items fail" good_and 'CLBlast is not used for\|rows from now on'
else
    echo "note: CLBlast is not in this build"
fi
cp "$tmp/hello" "$tmp/good"

# ---- several devices ----
launch=clEnqueueNDRangeKernel
for device in cpu,opencl opencl,cpu; do
    for call in $((launches / 7)) $((launches / 3)) $((launches / 2)); do # each has about half of the layers
        run FORGE_CLFAULT="$launch:$call:-5,$launch:$((call + 1)):-5" -- --no-selftest
        ok "$device, launch $call" good_and "$again"
    done
done
device=opencl:0,opencl:1
POCL_DEVICES="pthread pthread"
export POCL_DEVICES
run -- --no-selftest
ok "two devices of one chip: told once" [ "$(grep -c 'the same chip' "$tmp/err")" -eq 1 ]
if is_good; then
    for call in $((launches / 7)) $((launches / 2)) $late; do
        run FORGE_CLFAULT="$launch:$call:-5,$launch:$((call + 1)):-5" -- --no-selftest
        ok "$device, launch $call" good_and "$again"
    done
else
    echo "note: no two devices of one platform here"
fi
unset POCL_DEVICES
device=opencl

# ---- the check of a device at its first use ----
# Wrong kernels cost their operation the device, not the run: the text stays, and the table names who ran it.
first_use() {
    rm -f "$tmp/cache/forge/"*.ok
    run "$@"
}
while read -r operation kernels; do
    first_use FORGE_CLSKIP="$kernels" --
    ok "$operation is computed wrongly" good_and "^forge: ran on.*cpu: $operation"
    first_use FORGE_CLSKIP="$kernels" -- --require-device
    ok "$operation is computed wrongly, the device required" error_with "opencl:0: $operation .* is wrong: error"
done <<EOF
embed embed
rmsnorm rmsnorm
linear linear_1,linear_2,linear_4
rope rope
act_mul act_mul_silu
add add
argmax argmax_part
EOF
for kernels in kv_store attn_rows,attn_chunks; do
    first_use FORGE_CLSKIP="$kernels" --
    ok "$kernels: whole layers move" good_and '^forge: ran on cpu: embed'
    ok "$kernels: whole layers move" good_without '^forge: ran on.*opencl'
done
# Attention is compiled for the model's heads, which the list of cases does not have.
first_use FORGE_CLNOBUILD=-DHD=32 --
ok "attention does not build for the model's heads" good_and '^forge: ran on cpu: embed'
ok "attention does not build for the model's heads" good_without '^forge: ran on.*opencl'
first_use FORGE_CLNOBUILD=-DHD=32 -- --require-device
ok "attention does not build for the model's heads, the device required" error_with 'opencl:0: attention .* could not be run'
first_use FORGE_CLSPOIL=30+ -- --require-device
ok "reads are spoiled" error_with 'opencl:.* is wrong: error'
first_use --
ok "the check of a sound device" good_without cpu:
run FORGE_CLSKIP=rope --
ok "a check that passed is remembered" [ "$rc" -eq 0 ] # nothing looks at the device again

# One that goes wrong later is found when the device was opened again.
first_use --
run FORGE_CLNOBUILD=-DWT=WT_BF16 -- --no-kernel-cache
ok "kernels of a type never build" good_and '^forge: ran on.*cpu: embed, linear'
run --
run FORGE_CLNOBUILD=-DWT=WT_BF16 --
ok "kernels of a type do not build any more" good_and '^forge: ran on.*cpu: embed, linear'

# Programs that do not build, likewise.
rm -f "$tmp/cache/forge/"*
run FORGE_CLCOUNT="$tmp/all" --
builds=$(sed -n 's/^clBuildProgram //p' "$tmp/all")
step=3
[ "$sweep" = few ] || step=1
i=1
while [ "$i" -le "$builds" ]; do
    rm -f "$tmp/cache/forge/"*
    run FORGE_CLFAULT="clBuildProgram:$i:-11" --
    # the model has no experts: that their kernels do not build is only told
    ok "program $i of $builds does not build" \
        good_and '^forge: ran on.*cpu: \|opened again\|self-test: .* could not be run: .*building route.cl.*FAILURE'
    i=$((i + step))
done

# ---- the GPU family: its variants give way to the base kernels first ----
if [ "$sweep" != few ]; then # compilers of CPU runtimes take minutes for it
    while read -r operation kernels; do
        first_use FORGE_CLSKIP="$kernels" -- --kernels gpu
        ok "GPU family, $operation is computed wrongly" good_and "^forge: ran on.*base kernels): $operation"
    done <<EOF
linear linear_row,linear_few4,linear_few8,linear_tile
attention attn_tiles
EOF
    run FORGE_CLNOBUILD=-DBT=1 -- --kernels gpu --no-selftest
    ok "GPU family, attention does not build" good_and '^forge: ran on.*base kernels): attention'
fi

# ---- windows over the file that do not read back ----
run FORGE_CLSPOIL=1+ -- --no-selftest
ok "reads are spoiled: that weights are copied is told once" \
    [ "$(grep -c 'weights are copied' "$tmp/err")" -eq 1 ]

# ---- ^C ----
# What fails just after one is its doing: a compiler's own handler may have taken the compiler's files away.
interrupted() { [ "$rc" -eq 130 ] && ! grep -q '^forge: error' "$tmp/err"; }
for rule in clBuildProgram:1:-11 clBuildProgram:3:-11 clBuildProgram:6:-11 clEnqueueNDRangeKernel:$late:-5 \
    clEnqueueReadBuffer:4:-36; do # once: the second SIGINT would end the process
    run FORGE_CLINT=1 FORGE_CLFAULT="$rule" -- --no-selftest --no-kernel-cache -n 40 --ignore-eos
    ok "interrupted, and $rule" interrupted
done
i=0
n=5
ended=0
[ "$sweep" = few ] || n=100
while [ "$i" -lt "$n" ]; do
    OPENCL_LAYERS=$layer timeout --preserve-status -k 60 -s INT "0.$((i % 8 + 1))$((i / 8))" "$FORGE" generate \
        --device opencl -p Hello -n 400 --ignore-eos >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
    ok "interrupted after 0.$((i % 8 + 1)) s" [ $rc -eq 130 -o $rc -eq 0 ]
    [ $rc -ne 130 ] || ended=$((ended + 1))
    i=$((i + 1))
done
ok "of $n that were interrupted none was in time" [ "$ended" -gt 0 ]
# While the driver compiles, with nothing on disk.
for after in 0.3 0.9; do
    rm -rf "$tmp/pocl" "$tmp/cache/forge"
    OPENCL_LAYERS=$layer POCL_CACHE_DIR=$tmp/pocl timeout --preserve-status -k 300 -s INT $after "$FORGE" generate \
        --device opencl --no-selftest -p Hello -n 400 --ignore-eos >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
    ok "interrupted after $after s while kernels are compiled" [ $rc -eq 130 ]
done

echo "cl_faults: $runs runs, $recovered of the single failures recovered"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
