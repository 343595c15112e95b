#!/bin/sh
# The example program: under 60 lines, against forge.h and the shared library
# alone, and it says what it should on the built-in model.
set -u
src=$srcdir/examples/hello.c
passed=0 failed=0
check() {
    if [ "$2" = yes ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL: $1"; fi
}
lines=$(wc -l < "$src")
check "$src has $lines lines, 60 at most" "$([ "$lines" -lt 60 ] && echo yes)"
check "includes no header of ours but forge.h" "$(grep -q '#include "' "$src" || echo yes)"
out=$(./examples/hello "$srcdir/data/forge-tiny" 'The capital of France is' 2>&1)
case $out in *' Paris.'*) ok=yes ;; *) ok=no; echo "$out" ;; esac
check "its text" "$ok"
if ./examples/hello "$srcdir/no-such-model" x >/dev/null 2>&1; then ok=no; else ok=yes; fi
check "a missing model is an error" "$ok"
# only forge_ symbols leave the library
lib=$(find .libs -name 'libforge.so*' -type f 2>/dev/null | head -n 1)
if [ -n "$lib" ] && command -v nm >/dev/null; then
    # instrumented builds add symbols of their own
    other=$(nm -D --defined-only "$lib" | awk '{ print $NF }' | sed 's/@.*//' |
            grep -vE '^(forge_|__asan|__ubsan|__gcov|__sanitizer|__odr_asan|mangle_path$|_init$|_fini$)' || true)
    check "other symbols exported: $other" "$([ -z "$other" ] && echo yes)"
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
