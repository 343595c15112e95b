#!/bin/sh
# The program on one kind of OpenCL platform after another: what `forge devices` lists, what a selector means
# there, and that the text is the CPU's.  Kinds are made of PoCL by its settings, of folders of ICD files,
# and of the fault layer's answers; those that cannot be made here are skipped, each with its reason.
#
#     FORGE=build/forge tests/cl_matrix.sh [-u] [KIND...]
#
# -u: the unit tests of the OpenCL backend on each implementation, too (minutes to hours; `make check-devices`).
# Other implementations than PoCL: Intel's CPU runtime where FORGE_INTEL_OCL names its libintelocl.so or pip has
# installed it (intel-opencl-rt with intel-cmplr-lib-rt), Rusticl on llvmpipe (mesa-opencl-icd), Oclgrind.
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
unset FORGE_MODEL FORGE_WEIGHTS OPENCL_LAYERS OCL_ICD_FILENAMES OPENCL_VENDOR_PATH POCL_DEVICES POCL_MEMORY_LIMIT \
    POCL_MAX_WORK_GROUP_SIZE FORGE_CLFAULT FORGE_CLFAKE FORGE_CLSPOIL FORGE_CLGROUP
XDG_CACHE_HOME=$tmp/cache
export XDG_CACHE_HOME
units=
[ "${1-}" = -u ] && { units=1; shift; }
wanted=$*
limit=$((300 * ${CK_TIMEOUT_MULTIPLIER:-1})) # seconds of one run of the program
passed=0
failed=0
skipped=0
kind=
settings=

# kind NAME SETTING...: false when it was not asked for
kind() {
    kind=$1
    shift
    settings=$*
    [ -z "$wanted" ] && return 0
    case " $wanted " in *" $kind "*) return 0 ;; esac
    return 1
}

# forge ARGS: runs it on the kind at hand; status in rc
forge() {
    # shellcheck disable=SC2086 # settings hold no blanks but between them
    env $settings timeout "$limit" "$FORGE" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
}

ok() {
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $kind: $*"
        tail -n 3 "$tmp/out" "$tmp/err"
    fi
}

skip() {
    skipped=$((skipped + 1))
    echo "skipped: $kind: $1"
}

status() { [ "$rc" -eq "$1" ]; }
out() { grep -E -q -e "$1" "$tmp/out"; }
err() { grep -E -q -e "$1" "$tmp/err"; }
not_out() { ! grep -E -q -e "$1" "$tmp/out"; }
not_err() { ! grep -E -q -e "$1" "$tmp/err"; }
count() { [ "$(grep -E -c -e "$1" "$tmp/out")" -eq "$2" ]; }

# The text of the built-in model by flags is the CPU's.
same_text() {
    forge generate -p "The capital of France is" -n 6 --kv f32 --no-selftest "$@"
    status 0 && cmp -s "$tmp/out" "$tmp/cpu"
}

# The ids of a golden model with so much memory for the device are the CPU's; REGEX says what was told.
same_ids() { # BUDGET REGEX [FLAG...]
    budget=$1
    told=$2
    shift 2
    golden="-m $here/golden/models/qwen3 --ids 1,2,3,4,5 -n 8 --kv f32 --ctx 64 --no-selftest"
    # shellcheck disable=SC2086
    forge generate $golden --json --device cpu
    sed -n 's/.*"ids": *\(\[[^]]*\]\).*/\1/p' "$tmp/out" | tail -n 1 >"$tmp/ids"
    # shellcheck disable=SC2086
    forge generate $golden --json --device opencl --deterministic --gpu-mem "$budget" "$@"
    status 0 && [ -s "$tmp/ids" ] && grep -q -F "$(cat "$tmp/ids")" "$tmp/out" && err "$told"
}

refused() { # STATUS REGEX SELECTOR
    forge generate -p Hello -n 1 --device "$3"
    status "$1" && err "$2"
}

# units PROGRAM [SETTING...]: a unit test on the kind at hand; its own counts are added.
units() {
    [ -n "$units" ] || return 0
    program=$(dirname "$FORGE")/tests/$1
    shift
    if [ ! -x "$program" ]; then
        skip "$program is not built"
        return
    fi
    # shellcheck disable=SC2086
    env FORGE_TEST_SRCDIR="$here" FORGE_TEST_BUILDDIR="$tmp" FORGE_TEST_KERNELS="$tmp/kernels" $settings "$@" \
        timeout 14400 "$program" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$tmp/out" | tail -n 1)
    echo "$kind: $(basename "$program"): ${line:-no counts, exit status $rc}"
    # shellcheck disable=SC2086
    set -- $line
    passed=$((passed + ${1:-0}))
    skipped=$((skipped + ${5:-0}))
    grep '^skipped: ' "$tmp/out" | sort | uniq -c
    if [ $rc -eq 0 ] || [ $rc -eq 77 ]; then return; fi
    n=${3:-0}
    [ "$n" -gt 0 ] || n=1
    failed=$((failed + n))
    grep -E ':[FE]:' "$tmp/out" | head -n 20
    tail -n 3 "$tmp/err"
}

# ---- without OpenCL ----
mkdir "$tmp/none" "$tmp/broken"
echo /nonexistent/libnothing.so >"$tmp/broken/broken.icd"
forge generate -p "The capital of France is" -n 6 --kv f32 --device cpu
cp "$tmp/out" "$tmp/cpu"
for dir in none broken; do
    kind $dir OCL_ICD_VENDORS="$tmp/$dir" || continue
    forge devices
    ok status 0
    ok out '^cpu '
    ok out '^skipped: opencl: no platform'
    ok not_out '^opencl:0'
    ok refused 1 'no OpenCL' opencl
    ok refused 1 'no OpenCL' opencl:gpu
    ok same_text --device auto
    ok not_err 'opencl:'
done

# ---- PoCL in several shapes ----
icd=
for d in "${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}" /etc/OpenCL/vendors; do
    [ -z "$icd" ] && [ -r "$d/pocl.icd" ] && icd=$d/pocl.icd
done
pocl=$tmp/pocl
mkdir "$pocl"
[ -n "$icd" ] && cp "$icd" "$pocl/"
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
    exit
}

# ---- other makers ----
some="golden/models/gemma3 golden/models/qwen3-moe golden/models/qwen2 qwen3-q8_0 wide-q4_k.gguf"
find_intel() {
    [ -n "${FORGE_INTEL_OCL-}" ] && { echo "$FORGE_INTEL_OCL"; return; }
    for d in "${VIRTUAL_ENV-/nonexistent}" "${HOME-}/.cache/forge-opencl/intel" /usr/local /opt/intel; do
        [ -e "$d/lib/libintelocl.so" ] && { echo "$d/lib/libintelocl.so"; return; }
    done
}
intel=$(find_intel)
mkdir "$tmp/intel" "$tmp/makers"
if [ -n "$intel" ]; then
    echo "$intel" >"$tmp/intel/intel.icd"
    OCL_ICD_VENDORS=$tmp/intel "$FORGE" devices 2>/dev/null | grep -q '^opencl:0' || intel=
fi
no_intel="Intel's CPU runtime is not here (FORGE_INTEL_OCL)"
if kind intel OCL_ICD_VENDORS="$tmp/intel"; then
    if [ -n "$intel" ]; then
        forge devices
        ok count '^opencl:[0-9]' 1
        ok same_text --device opencl
        ok same_text --device opencl --kernels gpu --deterministic
        units test_opencl
        units test_opencl_gpu
            units test_opencl_variants
        for lanes in 4 8; do # of a sub-group
            units test_opencl_variants CL_CONFIG_CPU_VECTORIZER_MODE=$lanes
        done
        units test_opencl_model FORGE_TEST_MODELS=golden FORGE_TEST_ONE_DEVICE=1
    else
        skip "$no_intel"
    fi
fi
if kind intel-small OCL_ICD_VENDORS="$tmp/intel" CL_CONFIG_CPU_FORCE_LOCAL_MEM_SIZE=16KB \
    CL_CONFIG_CPU_FORCE_GLOBAL_MEM_SIZE=1GB CL_CONFIG_CPU_FORCE_MAX_MEM_ALLOC_SIZE=128MB; then
    if [ -n "$intel" ]; then
        forge devices
        ok out '^opencl:0 .*1\.0 GiB'
        ok same_text --device opencl
        ok same_text --device opencl --kernels gpu --deterministic
    else
        skip "$no_intel"
    fi
fi
if kind intel-and-pocl OCL_ICD_VENDORS="$tmp/makers" POCL_DEVICES=pthread; then
    if [ -n "$intel" ] && [ -n "$icd" ]; then
        cp "$icd" "$tmp/intel/intel.icd" "$tmp/makers/"
        forge devices
        ok count '^opencl:[0-9]' 2
        ok same_text --device opencl:0,opencl:1
        ok same_text --device opencl:1,cpu,opencl:0 --split 1,1,2
        units test_opencl_model FORGE_TEST_TWO_DEVICES=1
    else
        skip "it needs PoCL and Intel's CPU runtime"
    fi
fi
# Minutes for the CPU family's tiles of 16 values, hence the other family's: the list of a first use, and the models.
if kind rusticl OCL_ICD_VENDORS="$tmp/rusticl" RUSTICL_ENABLE=llvmpipe MESA_SHADER_CACHE_DIR="$tmp/rusticl/cache"; then
    mkdir "$tmp/rusticl"
    cp /etc/OpenCL/vendors/rusticl.icd "$tmp/rusticl/" 2>/dev/null
    forge devices
    if out '^opencl:0'; then
        ok count '^opencl:[0-9]' 1
        units test_opencl_gpu FORGE_TEST_SHORT=1
        units test_opencl_model FORGE_TEST_MODELS="${FORGE_TEST_MODELS:-models/qwen3-untied}" FORGE_TEST_ONE_DEVICE=1 FORGE_TEST_PROMPT=7 \
            FORGE_TEST_FAMILY=gpu
    else
        skip "Rusticl is not here (mesa-opencl-icd)"
    fi
    settings="OCL_ICD_VENDORS=$tmp/rusticl RUSTICL_ENABLE=" # its platform without a device
    forge devices
    ok status 0
    ok not_out '^opencl:0'
    ok same_text --device auto
fi
# Races, bounds and wrong calls, all told in a log: it exits 0 whatever it finds.
if kind oclgrind OCL_ICD_VENDORS="$tmp/grind" OCLGRIND_DATA_RACES=1 OCLGRIND_CHECK_API=1 OCLGRIND_MAX_WGSIZE=64 \
    OCLGRIND_LOG="$tmp/grind/log"; then
    mkdir "$tmp/grind"
    for f in /usr/lib/oclgrind /usr/lib/*/oclgrind /usr/local/lib/oclgrind; do
        [ -e "$f/liboclgrind-rt-icd.so" ] && echo "$f/liboclgrind-rt-icd.so" >"$tmp/grind/oclgrind.icd"
    done
    forge devices
    if out '^opencl:0'; then
        units test_opencl_gpu FORGE_TEST_SHORT=1
        for family in cpu gpu; do
            forge generate -m "$here/golden/models/qwen3" --ids 1,2,3,4,5 -n 2 --kv f32 --no-selftest --device opencl \
                --kernels $family --deterministic
            ok status 0
        done
        ok test ! -s "$tmp/grind/log"
        head -n 20 "$tmp/grind/log" 2>/dev/null
    else
        skip "Oclgrind is not here"
    fi
fi

if [ -z "$icd" ] || ! OCL_ICD_VENDORS=$pocl "$FORGE" devices | grep -q 'opencl:0'; then
    kind=pocl
    skip "it is not installed"
    finish
fi
on="OCL_ICD_VENDORS=$pocl"

if kind pocl "$on"; then
    units test_opencl
    units test_opencl_gpu
    units test_opencl_model FORGE_TEST_MODELS=golden
    forge devices
    ok status 0
    ok count '^opencl:[0-9]' 1
    ok same_text --device opencl
    ok same_text --device opencl:cpu
    ok same_text --device opencl:0
    ok same_text --device opencl:0.0
    ok same_text --device pthread
    ok same_text --device cpu,opencl
    ok same_ids 8M 'ran on opencl:0: [^;]*argmax'
    ok same_ids 5000K '2 of 3 layers fit'
    ok same_ids 5000K '2 of 3 layers fit' --kernels gpu
    ok same_ids 4880K '1 of 3 layers fit'
    for budget in 11M 12M 13M; do
        forge generate -p Hello -n 1 --device opencl --gpu-mem $budget
        ok status 0
        ok err '1 of 4 layers fit'
    done
    for budget in 7M 8M 9M 10500K; do # with fewer rows in a step
        ok same_text --device opencl --gpu-mem $budget
        ok err 'steps of [0-9]* positions instead of 512'
        ok err '1 of 4 layers fit'
    done
    forge generate -p Hello -n 1 --device opencl --gpu-mem 4M
    ok status 1
    ok err 'one of 4 layers needs some [0-9]* bytes, with steps of 32 positions, and 4194304 may be taken'
    ok err 'or raise --gpu-mem'
    forge generate -m "$here/golden/models/qwen3" --ids 1,2 -n 1 --ctx 64 --device opencl --gpu-mem 500K --require-device
    ok status 1
    ok err '512000'
    forge generate -m "$here/golden/models/qwen3" --ids 1,2 -n 1 --ctx 64 --device opencl --gpu-mem 200K
    ok status 1
    ok err '204800'
    ok refused 1 'no OpenCL GPU' opencl:gpu
    for s in opencl:9 opencl:-1 opencl:1x opencl:0.7 opencl:4294967296 opencl: opencl:0.; do
        ok refused 2 'opencl:0' $s
    done
fi
if kind pocl-wg64 "$on" POCL_MAX_WORK_GROUP_SIZE=64; then
    ok same_text --device opencl
    ok same_text --device opencl --kernels gpu --deterministic
    units test_opencl_model FORGE_TEST_MODELS="$some" FORGE_TEST_ONE_DEVICE=1
fi
if kind pocl-wg1 "$on" POCL_MAX_WORK_GROUP_SIZE=1; then
    ok same_text --device opencl
    units test_opencl_model FORGE_TEST_MODELS="$some" FORGE_TEST_ONE_DEVICE=1
fi
if kind pocl-1g "$on" POCL_MEMORY_LIMIT=1; then
    forge devices
    ok out '^opencl:0 .*1\.0 GiB'
    ok same_text --device opencl
    forge generate -p Hello -n 1 --device opencl --gpu-mem 100K
    ok status 1
    ok err '102400'
fi
if kind pocl-2dev "$on" 'POCL_DEVICES=pthread basic'; then
    settings="$on"
    POCL_DEVICES="pthread basic"
    export POCL_DEVICES
    forge devices
    ok count '^opencl:[0-9]' 2
    ok same_text --device opencl:0,opencl:1
    ok same_text --device opencl:1,cpu,opencl:0 --split 1,1,2
    ok same_text --device opencl:0.1
    POCL_DEVICES="pthread pthread"
    ok refused 2 'more than one' pthread # equal names
    unset POCL_DEVICES
fi
if kind pocl-nonsense "$on" POCL_DEVICES=nonsense; then
    forge devices
    ok status 0
    ok not_out '^opencl:0'
    ok out '^skipped: .*Portable Computing Language'
    ok refused 1 'Portable Computing Language' opencl
fi
if kind pocl-no-cache "$on" POCL_CACHE_DIR=/proc/nothing HOME=/proc/nothing; then
    forge devices
    ok status 0
    ok out '^skipped: opencl|^opencl:0'
fi
if kind two-platforms OCL_ICD_VENDORS="$tmp/two"; then
    mkdir "$tmp/two"
    cp "$icd" "$tmp/two/"
    cp "$tmp/broken/broken.icd" "$tmp/two/"
    forge devices
    ok count '^opencl:[0-9]' 1 # a broken one hides nothing
    ok same_text --device opencl
fi

# ---- devices that say odd things ----
layer=${FORGE_CLFAULT_LIB:-$tmp/libclfault.so}
[ -f "$layer" ] || sh "$here/clfault/build.sh" "$layer" 2>/dev/null
kind=layer
if ! OCL_ICD_VENDORS=$pocl OPENCL_LAYERS=$layer "$FORGE" devices 2>&1 | grep -q '^clfault:'; then
    skip "the fault layer does not build or is not loaded"
    finish
fi
on="$on OPENCL_LAYERS=$layer"

if kind cpu-alone "$on"; then # D7: whoever asks for the CPU does not wake a driver
    ok same_text --device cpu
    ok not_err clfault
fi
if kind no-compiler "$on" FORGE_CLFAKE=0x1028=0; then
    forge devices
    ok not_out '^opencl:0'
    ok out '^skipped: .*compiler'
fi
if kind odd-name "$on" FORGE_CLFAKE=0x102b=,0x102c=Unheard-of,0x102d=junk; then
    forge devices
    ok out '^opencl:0'
    ok same_text --device opencl
fi
for version in 'OpenCL_2' 'OpenCL' 'junk'; do # D10
    if kind odd-version "$on" FORGE_CLFAKE=0x102f=$version,0x103d=$version; then
        forge devices
        ok status 0
        ok out 'opencl'
    fi
done
if kind no-memory-said "$on" FORGE_CLFAKE=0x101f=0,0x1010=0; then # M4: 0 is unknown
    ok same_text --device opencl
fi
if kind small-allocations "$on" FORGE_CLFAKE=0x1010=600000; then # M1: weights in parts of rows, steps of fewer positions
    ok same_text --device opencl --require-device
    ok err 'steps of 256 positions instead of 512, as one allocation may have 600000 bytes'
fi
if kind gpu "$on" FORGE_CLFAKE=0x1000=4,0x1035=0; then
    forge devices
    ok out 'GPU'
    ok same_text --device opencl:gpu --deterministic
    forge generate -p Hello -n 1 -v --no-selftest
    ok err 'auto: opencl:0'
    forge generate -p Hello -n 1 --no-selftest --kernel-dir "$tmp/none"
    ok status 1
    ok err 'kernels of .*/none: .*cannot open'
fi
if kind no-vectors "$on" FORGE_CLFAKE=0x103a=1; then # a CPU device whose compiler takes vectors apart
    ok same_text --device opencl --deterministic --debug cl
    ok err 'family gpu'
    ok same_text --device opencl --kernels cpu --debug cl
    ok err 'family cpu'
fi
if kind small-kernels "$on" FORGE_CLGROUP=2; then # G1: below the device's limit
    ok same_text --device opencl --no-kernel-cache
fi
if kind false-extension "$on" FORGE_CLFAKE=0x1030=cl_khr_fp16; then # G7
    ok same_text --device opencl
fi
if kind platform-fails "$on" FORGE_CLFAULT=clGetDeviceIDs:1+:-1; then # D6
    forge devices
    ok status 0
    ok out '^skipped: '
fi

finish
