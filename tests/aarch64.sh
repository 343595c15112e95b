#!/bin/sh
# The aarch64 build, on a machine of another kind.
#   aarch64.sh        only whether the NEON files compile without a warning (a second); what make check does
#   aarch64.sh all    from a build folder: builds forge in aarch64-build and runs a chosen set of tests under qemu-user,
#                     as a processor with everything, and as one without the dot product of bytes (make check-aarch64)
# Needs aarch64-linux-gnu-gcc; for all of it qemu-aarch64, and cJSON, PCRE2, utf8proc and Check for arm64, where Debian's
# multiarch puts them or below FORGE_AARCH64_ROOT, where `dpkg -x` unpacked them.  What is missing is named, and skips.
# AARCH64_TESTS="op fast" runs these tests only.
set -u
src=$(cd "$(dirname "$0")/.." && pwd) || exit 1
host=aarch64-linux-gnu
skip() {
    echo "aarch64: $1; skipped"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
}
command -v $host-gcc >/dev/null 2>&1 || skip "no $host-gcc here (Debian: gcc-$host)"

if [ "${1-}" != all ]; then
    bad=0
    for f in isa kern_c kern_peak kern_neon 'kern_neondot -march=armv8.2-a+dotprod'; do
        # shellcheck disable=SC2086
        set -- $f
        $host-gcc -fsyntax-only -std=gnu11 -D_GNU_SOURCE -I"$src/src" -I"$src/include" -I"$src/cl" -I"$src" \
            -ffp-contract=off -Wall -Wextra -Wshadow -Wconversion -Wpedantic -Wvla -Werror ${2-} \
            "$src/src/backend/cpu/$1.c" || bad=$((bad + 1))
    done
    echo "$((5 - bad)) passed, $bad failed, 0 skipped"
    [ $bad = 0 ]
    exit
fi

command -v qemu-aarch64 >/dev/null 2>&1 || skip "no qemu-aarch64 here (Debian: qemu-user)"
root=${FORGE_AARCH64_ROOT-}
lib=$root/usr/lib/$host
PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR
for l in libcjson libpcre2-8 libutf8proc check; do
    pkg-config --exists $l || skip "no $l for arm64 below $lib (FORGE_AARCH64_ROOT: where it was unpacked)"
done
unset CC CFLAGS
mkdir -p aarch64-build && cd aarch64-build || exit 1
[ -f Makefile ] || "$src/configure" -q --host=$host --without-opencl --without-server --enable-werror || exit 1
programs=
for t in ${AARCH64_TESTS-base base_files canon tensor text file_gguf peak thread kv op fast model_golden batch session}; do
    programs="$programs tests/test_$t"
done
# shellcheck disable=SC2086
make -s -j "$(getconf _NPROCESSORS_ONLN)" forge $programs || exit 1

status=0
for cpu in max cortex-a53; do
    qemu="qemu-aarch64 -cpu $cpu -L /usr/$host -E LD_LIBRARY_PATH=$lib"
    printf '#!/bin/sh\nexec %s "%s/forge" "$@"\n' "$qemu" "$PWD" >forge-qemu
    chmod +x forge-qemu
    echo "== $cpu: $(./forge-qemu --version -v | grep '^cpu:')"
    make -s check-TESTS TESTS="$programs" check_PROGRAMS="$programs" LOG_COMPILER="$qemu" CK_TIMEOUT_MULTIPLIER=20 || status=1
    # shellcheck disable=SC2086
    sh "$src/tests/summary.sh" $programs || status=1
    FORGE=$PWD/forge-qemu sh "$src/tests/cli/run.sh" "$src/tests/cli/generate.test" "$src/tests/cli/golden.test" \
        "$src/tests/cli/selftest.test" || status=1
done
exit $status
