#!/bin/sh
# Runs a smaller set of the unit tests under valgrind's memcheck, from the build
# folder: reads of what was never written, accesses out of bounds, memory lost.
# Check's child of a test that has an error exits with 9, so that the test itself
# fails.  Left out are tests that mostly compute (operations, whole models), and
# test_alloc, which refuses memory to valgrind's helpers too.
#
#   make check-valgrind                       all of the set
#   make check-valgrind VALGRIND_TESTS="json kv"
#
# Valgrind knows no AVX-512 and says so in the CPUID that it shows; the choice of
# an instruction set at run time follows that.
set -u
set=${VALGRIND_TESTS:-base base_files json file file_safetensors file_pth file_gguf tensor text text_steps
    text_gguf kv sampler stop model_config model_gguf request seq thread}
valgrind=${VALGRIND:-valgrind}
if ! command -v "$valgrind" >/dev/null 2>&1; then
    echo "valgrind is not installed (Debian: apt-get install valgrind)"
    exit 77
fi
# No OpenCL platform is loaded: glibc's loader reads past the end of a string of its own in words.
CK_FORK=yes CK_DEFAULT_TIMEOUT=0 OCL_ICD_VENDORS=/nonexistent
export CK_FORK CK_DEFAULT_TIMEOUT OCL_ICD_VENDORS
passed=0 failed=0 skipped=0
for name in $set; do
    log=tests/test_$name.valgrind
    if [ ! -x "tests/test_$name" ]; then
        echo "test_$name: is not built"
        failed=$((failed + 1))
        continue
    fi
    "$valgrind" -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect \
        --show-leak-kinds=definite,indirect --num-callers=25 "tests/test_$name" >"$log" 2>&1
    rc=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    case $line in
    '') p=0 f=1 s=0 ;;
    *)
        p=$(echo "$line" | cut -d ' ' -f 1)
        f=$(echo "$line" | cut -d ' ' -f 3)
        s=$(echo "$line" | cut -d ' ' -f 5)
        ;;
    esac
    [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ] && [ "$f" -eq 0 ] && f=1
    if [ "$f" -ne 0 ]; then
        echo "FAIL: test_$name (exit status $rc):"
        tail -n 60 "$log"
    else
        echo "test_$name: $line"
        rm -f "$log"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
