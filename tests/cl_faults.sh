#!/bin/sh
# Makes OpenCL calls of a generation of three tokens fail, each once, and holds the program to it: no crash,
# no hang, no object left over, and either the same text as without (recovered) or exit status 1 with a
# message that names the device and the code.
#
#     FORGE=build/forge tests/cl_faults.sh
#
# FORGE_SWEEP=all fails every call with every code (an hour); by default a few calls of each function, the
# codes in turn. FORGE_CLFAULT_LIB names a built layer; else CC (default cc) builds it. Status 77: skipped.
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
[ -f "$layer" ] || ${CC:-cc} -std=c11 -D_DEFAULT_SOURCE -O1 -fPIC -shared "$here/clfault/clfault.c" -o "$layer" \
    2>"$tmp/cc" || skip "the layer does not build: $(head -n 1 "$tmp/cc")"
unset FORGE_MODEL FORGE_WEIGHTS OPENCL_LAYERS FORGE_CLFAULT FORGE_CLFAKE FORGE_CLSPOIL FORGE_CLGROUP FORGE_CLCOUNT
XDG_CACHE_HOME=$tmp/cache
FORGE_CLSTRICT=1
export XDG_CACHE_HOME FORGE_CLSTRICT
passed=0
failed=0
runs=0
recovered=0

# run NAME=VALUE... -- FLAGS: one generation below the layer; its status in rc
run() {
    vars=
    while [ "$1" != -- ]; do
        vars="$vars $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # a list of settings without blanks
    env OPENCL_LAYERS="$layer" $vars timeout 120 "$FORGE" generate --device opencl -p Hello -n 3 "$@" \
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
        [ "${FORGE_SWEEP:-}" = all ] && few=$calls
        step=$(((calls + few - 1) / few))
        i=1
        while [ "$i" -le "$calls" ]; do
            n=0
            for code in -4 -5 -6 -11 -54; do
                n=$((n + 1))
                [ "${FORGE_SWEEP:-}" = all ] || [ $((turn % 5 + 1)) -eq $n ] || continue
                run FORGE_CLFAULT="$fn:$i:$code" -- "$@"
                grep -q "^clfault: $fn call $i" "$tmp/err" || [ "$rc" -ne 0 ] || echo "note: $fn call $i was not made"
                judge "$fn call $i of $calls, $code" "$code" $named
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

# with compiled kernels on disk, then from their text
run FORGE_CLCOUNT="$tmp/counts" -- --no-selftest
sweep --no-selftest
run FORGE_CLCOUNT="$tmp/all" -- --no-selftest --no-kernel-cache
grep -E '^(clCreateProgramWithSource|clBuildProgram|clCreateKernel|clGetProgram.*) ' "$tmp/all" >"$tmp/counts"
sweep --no-selftest --no-kernel-cache

echo "cl_faults: $runs runs, $recovered of them recovered"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
