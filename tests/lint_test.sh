#!/bin/sh
# Self-test of tests/lint.sh: a tiny clean tree passes; then one violation of
# each kind is planted, must be named with its file and line, and is taken out
# again.  A lint that finds nothing everywhere fails here.
here=${srcdir:-.}/tests
[ -f "$here/lint.sh" ] || here=$(dirname "$0")
tree=lint-test.$$
passed=0 failed=0
trap 'rm -rf "$tree"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$tree/tests/lint" "$tree/src/base" "$tree/src/backend/cpu" "$tree/src/run" "$tree/src/cli" "$tree/cl" \
    "$tree/include" || exit 1
cp "$here/lint/rules.txt" "$here/lint/lint.awk" "$tree/tests/lint/" || exit 1
: >"$tree/tests/lint/exceptions.txt"

header='/* A file of the self-test.
 *
 * Owns nothing. */'

verdict() { # NAME OK
    if [ "$2" = yes ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1"
        sed 's/^/    /' "$tree/out"
    fi
}

accept() { # NAME: the tree passes
    if sh "$here/lint.sh" "$tree" >"$tree/out" 2>&1; then verdict "$1" yes; else verdict "$1" no; fi
}

refuse() { # NAME TEXT: the tree fails, and TEXT is in the output
    if ! sh "$here/lint.sh" "$tree" >"$tree/out" 2>&1 && grep -qF -- "$2" "$tree/out"; then
        verdict "$1" yes
    else
        verdict "$1" no
    fi
}

# plant FILE LINE MESSAGE: a file with its header and one more line (the fourth)
plant() {
    printf '%s\n%s\n' "$header" "$2" >"$tree/$1"
    refuse "$1: $2" "$1:4: $3"
    rm -f "$tree/$1"
}

# harmless FILE LINE: the same, but it must pass
harmless() {
    printf '%s\n%s\n' "$header" "$2" >"$tree/$1"
    accept "$1: $2"
    rm -f "$tree/$1"
}

# long FILE NAME LINES: a function of that many lines
long() {
    {
        printf '%s\n\nvoid %s(int a,\n    int b)\n{\n' "$header" "$2"
        i=2
        while [ $i -lt "$3" ]; do
            printf '    a += b;\n'
            i=$((i + 1))
        done
        printf '}\n'
    } >"$tree/$1"
}

printf '%s\n#include "base/b.h"\n#include "config.h"\n#include <stdio.h>\n' "$header" >"$tree/src/base/a.c"
printf '%s\n' "$header" >"$tree/src/base/b.h"
printf '%s\n' "$header" >"$tree/cl/k.clh"
accept 'clean tree'

# who may include whom
plant src/base/x.c '#include "tensor/dtype.h"' 'includes "tensor/dtype.h"'
plant src/base/x.c '#include "run/seq.h"' 'includes "run/seq.h"'
plant src/base/x.c '#include <forge.h>' 'includes "forge.h"'
plant src/base/x.c '#  include "b.h"' 'includes "b.h"'
plant src/backend/x.c '#include "backend/cpu/cpu.h"' 'includes "backend/cpu/cpu.h"'
plant src/backend/cpu/x.c '#include "model/model.h"' 'includes "model/model.h"'
plant src/backend/cpu/x.c '#include "backend/registry.h"' 'includes "backend/registry.h"'
plant src/run/x.c '#include "backend/backend.h"' 'includes "backend/backend.h"'
plant src/run/x.c '#include "cli/out.h"' 'includes "cli/out.h"'
plant src/cli/cmd-generate.c '#include "run/seq.h"' 'includes "run/seq.h"'
plant src/cli/cmd-generate.c '#include "cli/tools.h"' 'includes "cli/tools.h"'
plant include/forge.h '#include "base/err.h"' 'includes "base/err.h"'
harmless src/run/x.c '#include "backend/op.h"'
harmless src/backend/cpu/x.c '#include "canon.clh"'
harmless src/backend/registry.c '#include "backend/cpu/cpu.h"'
harmless src/cli/cmd-logits.c '#include "cli/tools.h"'
harmless src/cli/cmd-generate.c '#include <forge.h>'

# outside headers with one owner
plant src/run/x.c '#include <CL/cl.h>' '<CL/cl.h> belongs to'
plant src/run/x.c '#include <clblast_c.h>' '<clblast_c.h> belongs to'
plant src/backend/cpu/x.c '#include <immintrin.h>' '<immintrin.h> belongs to'
plant src/base/x.c '#include <arm_neon.h>' '<arm_neon.h> belongs to'
plant src/run/x.c '#include <pthread.h>' '<pthread.h> belongs to'
harmless src/backend/cpu/kern_x.c '#include <immintrin.h>'
harmless src/base/thread.c '#include <pthread.h>'

# no environment, no end, no printing in the library; banned functions anywhere
for f in getenv exit abort printf puts setlocale; do
    plant src/run/x.c "int x = $f (0);" "$f() is not for this file"
    harmless src/cli/x.c "int x = $f (0);"
done
for f in stdout stderr; do
    plant src/run/x.c "void *x = $f;" "$f is not for this file"
done
for f in strcpy strcat sprintf gets atoi atof strtok alloca; do
    plant src/base/x.c "int x = $f(y);" "$f() is not for this file"
    plant tests/test_x.c "int x = $f(y);" "$f() is not for this file"
    plant cl/x.cl "int x = $f(y);" "$f() is not for this file"
done
plant src/base/x.c "/* a */ int x = '\"' + abort(); /* b */" 'abort() is not for this file'
plant src/base/x.c 'int x = "\"//" ? abort() : 0;' 'abort() is not for this file'
harmless src/base/x.c 'int abort_at, x = p->exit(0) + s.abort(1) + my_exit(2); /* exit(3) */ // abort()'
harmless src/base/x.c 'const char *s = "printf(stdout) \" abort()";'
harmless src/base/x.c 'int n = snprintf(a, b, c) + vsnprintf(a, b, c, d);'

# header comments
for f in src/base/x.c src/base/x.h cl/x.cl cl/x.clh tests/test_x.c; do
    printf '/* Two lines,\n * not three. */\nint x;\nint y;\n' >"$tree/$f"
    refuse "$f: short header" "$f:1: opens with 2 lines of comment"
    printf 'int x;\n%s\n' "$header" >"$tree/$f"
    refuse "$f: header not first" "$f:1: opens with 0 lines of comment"
    : >"$tree/$f"
    refuse "$f: empty" "$f:1: is empty"
    rm -f "$tree/$f"
done

# lengths, with and without a reason
long src/base/x.c lengthy 100
accept 'function of 100 lines'
long src/base/x.c lengthy 101
refuse 'function of 101 lines' 'src/base/x.c:7: lengthy is over 100 lines'
echo 'src/base/x.c lengthy a table in the form of code' >"$tree/tests/lint/exceptions.txt"
accept 'excused function'
grep -qF 'long function: src/base/x.c:7: lengthy, 101 lines (excused)' "$tree/out" && listed=yes || listed=no
verdict 'excused function is listed' $listed
echo 'src/base/x.c lengthy' >"$tree/tests/lint/exceptions.txt"
refuse 'exception without a reason' 'an exception without a reason'
: >"$tree/tests/lint/exceptions.txt"
{ printf '%s\n' "$header"; i=3; while [ $i -lt 801 ]; do echo 'int x;'; i=$((i + 1)); done; } >"$tree/src/base/x.c"
refuse 'file of 801 lines' 'src/base/x.c:801: over 800 lines'
echo 'src/base/x.c file a generated table' >"$tree/tests/lint/exceptions.txt"
accept 'excused file'
: >"$tree/tests/lint/exceptions.txt"
sed '$d' "$tree/src/base/x.c" >"$tree/src/base/y.c" && rm "$tree/src/base/x.c"
accept 'file of 800 lines'
rm -f "$tree/src/base/y.c"

# the lint itself
echo 'nonsense row here' >>"$tree/tests/lint/rules.txt"
refuse 'unknown kind of rule' 'unknown kind of rule nonsense'
: >"$tree/tests/lint/rules.txt"
refuse 'no rules' '0 rules'
rm "$tree/tests/lint/rules.txt"
refuse 'no tree' 'is no source tree'

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
