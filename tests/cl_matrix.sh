#!/bin/sh
# The program on one kind of OpenCL platform after another: what `forge devices` lists, what a selector means
# there, and that the text is the CPU's.  Kinds are made of PoCL by its settings, of folders of ICD files,
# and of the fault layer's answers; those that cannot be made here are skipped, each with its reason.
#
#     FORGE=build/forge tests/cl_matrix.sh [KIND...]
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
wanted=$*
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
    env $settings timeout 300 "$FORGE" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
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

refused() { # STATUS REGEX SELECTOR
    forge generate -p Hello -n 1 --device "$3"
    status "$1" && err "$2"
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
if [ -z "$icd" ] || ! OCL_ICD_VENDORS=$pocl "$FORGE" devices | grep -q 'opencl:0'; then
    kind=pocl
    skip "it is not installed"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
    exit
fi
on="OCL_ICD_VENDORS=$pocl"

if kind pocl "$on"; then
    forge devices
    ok status 0
    ok count '^opencl:[0-9]' 1
    ok same_text --device opencl
    ok same_text --device opencl:cpu
    ok same_text --device opencl:0
    ok same_text --device opencl:0.0
    ok same_text --device pthread
    ok same_text --device cpu,opencl
    ok refused 1 'no OpenCL GPU' opencl:gpu
    for s in opencl:9 opencl:-1 opencl:1x opencl:0.7 opencl:4294967296 opencl: opencl:0.; do
        ok refused 2 'opencl:0' $s
    done
fi
if kind pocl-wg64 "$on" POCL_MAX_WORK_GROUP_SIZE=64; then
    ok same_text --device opencl
    ok same_text --device opencl --kernels gpu --deterministic
fi
if kind pocl-wg1 "$on" POCL_MAX_WORK_GROUP_SIZE=1; then
    ok same_text --device opencl
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
[ -f "$layer" ] || ${CC:-cc} -std=c11 -D_DEFAULT_SOURCE -O1 -fPIC -shared "$here/clfault/clfault.c" -o "$layer" 2>/dev/null
kind=layer
if ! OCL_ICD_VENDORS=$pocl OPENCL_LAYERS=$layer "$FORGE" devices 2>&1 | grep -q '^clfault:'; then
    skip "the fault layer does not build or is not loaded"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
    exit
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
if kind gpu "$on" FORGE_CLFAKE=0x1000=4,0x1035=0; then
    forge devices
    ok out 'GPU'
    ok same_text --device opencl:gpu --deterministic
    forge generate -p Hello -n 1 -v --no-selftest
    ok err 'auto: opencl:0'
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

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
