#!/bin/sh
# Builds the layer of clfault.c as the shared library OUT: tests/clfault/build.sh OUT.  CC names the compiler.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
# shellcheck disable=SC2086 # a compiler may have flags behind it
exec ${CC:-cc} -std=c11 -D_DEFAULT_SOURCE -O1 -fPIC -shared "$here/clfault.c" -o "$1"
