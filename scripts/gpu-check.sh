#!/bin/sh
# What a GPU that has not run forge before has to show, in at most 8 minutes: devices, the same text and the same bits as
# the CPU backend in both kernel families, CLBlast, selftest, speeds.  One report file, one line at the end.
#
#   scripts/gpu-check.sh [--device D] [--model PATH] [--build DIR] [--out FILE] [--seconds N]
#
# --device: as in `forge devices` (default: each OpenCL GPU there is); opencl:cpu tries the script itself without a GPU.
# --model: a model of yours that is measured beside the built-in one.  --build: where forge is or is built (build/).
# --seconds: for everything (480; on a slow device more, and each step's own limit grows with it); a step that finds none
# left is skipped, one past its limit fails.
# Exit: 0 all ok, 1 something failed or did not end in time, 2 usage, 77 no such device.
set -u
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
device='' model='' build=$root/build out='' seconds=480
while [ $# -gt 0 ]; do
    case $1 in
    --device | --model | --build | --out | --seconds) [ $# -gt 1 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; } ;;
    esac
    case $1 in
    --device) device=$2 ;;
    --model) model=$2 ;;
    --build) build=$2 ;;
    --out) out=$2 ;;
    --seconds) seconds=$2 ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
case $seconds in '' | *[!0-9]* | ????????*) echo "gpu-check: --seconds takes a number" >&2; exit 2 ;; esac
seconds=$(expr "$seconds" + 0) # in arithmetic of the shell 08 would be no number
out=${out:-gpu-check-$(date +%Y%m%d-%H%M%S).txt}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
: >"$out" || exit 1
start=$(date +%s)
ok=0 failed=0 skipped=0 speeds=''
unset FORGE_MODEL FORGE_WEIGHTS
forge=$build/forge
# kernels of its own, so that the first start is one; compiled once for all steps
XDG_CACHE_HOME=$tmp/cache
export XDG_CACHE_HOME
mkdir "$XDG_CACHE_HOME" || exit 1
ids=1,2,3,5,8,13,21,34,55,89,144,233,377,7,11,18,29,47,76,123,199,322,4,6,10,16,26,42,68,110,178,288,9,14,23,37,60,97,157,254

say() { echo "$*" | tee -a "$out"; }
left() { echo $((seconds - ($(date +%s) - start))); }

# step LIMIT NAME COMMAND...: its output goes into the report and $tmp/last
step() {
    limit=$(($1 * seconds / 480)) name=$2
    [ "$limit" -gt 0 ] || limit=1 # 0 would be none
    shift 2
    rest=$(left)
    if [ "$rest" -lt 5 ]; then
        skipped=$((skipped + 1))
        say "skipped  $name: no time left"
        return 1
    fi
    [ "$rest" -ge "$limit" ] || limit=$rest
    began=$(date +%s)
    printf '\n==== %s: %s\n' "$name" "$*" >>"$out"
    timeout -k 5 "$limit" "$@" >"$tmp/last" 2>"$tmp/err" </dev/null
    rc=$?
    cat "$tmp/last" "$tmp/err" >>"$out"
    took=$(($(date +%s) - began))
    if [ $rc -eq 0 ]; then
        ok=$((ok + 1))
        say "ok       $name ($took s)"
        return 0
    fi
    failed=$((failed + 1))
    if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then say "FAILED   $name: not done after $limit s"; else say "FAILED   $name: status $rc ($took s): $(tail -n 1 "$tmp/err")"; fi
    return 1
}

# ---- steps that are more than one command: each a shell of its own, so that its limit holds ----
cat >"$tmp/same.sh" <<'SAME'
# same.sh FORGE DEVICE FLAGS IDS EXACT MODEL...: ids of 6 greedy steps and logits of the whole prompt beside the cpu's;
# EXACT=1: every bit, else the same ids and logits that differ by 1e-3 of the largest at most
forge=$1 device=$2 flags=$3 ids=$4 exact=$5 bad=0 n=0
shift 5
dir=$(mktemp -d "$TMPDIR/same.XXXXXX") || exit 1
common="--kv f32 --ctx 64 --ids $ids"
text_ids() { sed -n 's/.*"ids": *\(\[[^]]*\]\).*/\1/p' "$1" | tail -n 1; }
values() { od -An -v -tf4 -w4 -j $((10 + $(od -An -tu2 -j8 -N2 "$1"))) "$1"; }
for m; do
    n=$((n + 1))
    # shellcheck disable=SC2086 # flags are words
    { "$forge" logits -m "$m" $common --device cpu --npy "$dir/a" --all --chunk 64 &&
        "$forge" generate -m "$m" $common --device cpu -n 6 --json >"$dir/a.json" &&
        "$forge" logits -m "$m" $common --device "$device" $flags --npy "$dir/b" --all --chunk 64 &&
        "$forge" generate -m "$m" $common --device "$device" $flags -n 6 --json >"$dir/b.json"; } >"$dir/out" 2>&1 ||
        { echo "$m: does not run"; cat "$dir/out"; bad=$((bad + 1)); continue; }
    values "$dir/a" >"$dir/a.txt"
    values "$dir/b" >"$dir/b.txt"
    apart=$(paste "$dir/a.txt" "$dir/b.txt" | awk '
        tolower($0) ~ /nan|inf/ { odd = 1 }
        { d = $1 - $2; d = d < 0 ? -d : d; a = $1 < 0 ? -$1 : $1; if (!(d <= most)) most = d; if (a > top) top = a }
        END { printf("%.2e of the largest logit, %s", (top > 0 ? most / top : most), (NR > 0 && !odd && most <= 1e-3 * top ? "near" : "far")) }')
    verdict=ok
    [ "$(text_ids "$dir/a.json")" = "$(text_ids "$dir/b.json")" ] && [ -n "$(text_ids "$dir/a.json")" ] || verdict="OTHER IDS"
    if cmp -s "$dir/a" "$dir/b"; then
        apart="the same bits"
    elif [ "$exact" = 1 ]; then
        verdict="OTHER BITS"
    else
        case $apart in *near) ;; *) verdict=FAR ;; esac
    fi
    echo "$(basename "$m"): $verdict, $apart"
    [ "$verdict" = ok ] || bad=$((bad + 1))
done
echo "$n models, $bad not as the cpu computes them"
[ $bad -eq 0 ] || { echo "$bad of $n models are not as the cpu computes them" >&2; exit 1; }
SAME
TMPDIR=$tmp
export TMPDIR

# the tokens per second of a test in the last bench: pp512, tg64
rate() { awk -v t="$1" '$1 == t { print $2; exit }' "$tmp/last"; }

# ---- the program ----
if [ ! -x "$forge" ]; then
    cat >"$tmp/build.sh" <<'BUILD'
[ -x "$2/configure" ] || (cd "$2" && autoreconf -i) || exit 1
mkdir -p "$1" && cd "$1" && { [ -f Makefile ] || "$2/configure" -q; } && make -s -j "$(getconf _NPROCESSORS_ONLN)" forge
BUILD
    step 240 "build" sh "$tmp/build.sh" "$build" "$root" || { say "gpu-check: no program, report in $out"; exit 1; }
fi
say "$("$forge" --version 2>/dev/null | head -n 1)"
step 60 "forge devices" "$forge" devices || { say "gpu-check: no list of devices, report in $out"; exit 1; }
cat "$tmp/last"
if [ -n "$device" ]; then
    devices=$device
else
    devices=$(sed -n 's/^\(opencl:[0-9]*\) .*, \(integrated \)\{0,1\}GPU, .*/\1/p' "$tmp/last")
    [ -n "$devices" ] || { say "gpu-check: no OpenCL GPU is here (--device opencl:cpu tries the script), report in $out"; exit 77; }
fi
golden=$root/tests/golden
set -- "$golden/models/qwen3" "$golden/models/gemma3" "$golden/models/qwen3-moe" "$golden/models/llama" "$golden/models/phi3" \
    "$golden/containers/gguf/qwen3-q8_0.gguf" "$golden/containers/gguf/qwen3-q4_0.gguf" "$golden/containers/gguf/wide-q4_k.gguf" \
    "$golden/containers/gguf/wide-q6_k.gguf"

# ---- each device ----
for d in $devices; do
    say "---- $d"
    step 90 "$d: text by the built-in model" "$forge" generate --device "$d" --require-device -p "The capital of France is" -n 12 -v || continue
    for family in cpu gpu; do
        step 75 "$d: goldens, family $family, deterministic: the cpu's bits" sh "$tmp/same.sh" "$forge" "$d" \
            "--require-device --no-selftest --deterministic --kernels $family" "$ids" 1 "$@"
    done
    step 60 "$d: goldens, family gpu, its own order of sums" sh "$tmp/same.sh" "$forge" "$d" \
        "--require-device --no-selftest --kernels gpu" "$ids" 0 "$@"
    for gemm in own clblast auto; do
        # the device's own check may refuse CLBlast, which --require-device makes an error
        step 40 "$d: --gemm $gemm: logits" sh "$tmp/same.sh" "$forge" "$d" \
            "--require-device --no-selftest --gemm $gemm" "$ids" 0 "$golden/models/qwen3"
        step 60 "$d: --gemm $gemm: bench of a prefill" "$forge" bench --device "$d" --require-device --no-selftest --gemm "$gemm" -p 512 -n 0 -r 2 &&
            speeds="$speeds, $gemm pp512 $(rate pp512)"
    done
    step 60 "$d: forge tune gemm" "$forge" tune gemm --device "$d" --require-device --no-selftest --rows 32,128,512 -r 3
    for m in "" ${model:+"$model"}; do
        step 90 "$d: bench ${m:-of the built-in model}" "$forge" bench ${m:+-m "$m"} --device "$d" --require-device -p 512 -n 64 -d 0,384 -r 2 &&
            speeds="$speeds, $(basename "${m:-built-in model}") pp512 $(rate pp512) tg64 $(rate tg64) tokens/s"
        [ -z "$m" ] || step 90 "$d: bench $m at depth 3000" "$forge" bench -m "$m" --device "$d" --require-device --no-selftest -p 0 -n 32 -d 3000 -r 1
        step 60 "$d: profile ${m:-of the built-in model}" "$forge" bench ${m:+-m "$m"} --device "$d" --require-device --no-selftest -p 128 -n 16 -r 1 --profile
    done
    step 150 "$d: forge selftest" "$forge" selftest --device "$d" -q
done
say "gpu-check: $ok ok, $failed failed, $skipped skipped in $(($(date +%s) - start)) s$speeds; report in $out"
[ $((failed + skipped)) -eq 0 ]
