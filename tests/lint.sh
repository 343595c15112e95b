#!/bin/sh
# Holds the house laws over the source tree: who may include whom, one owner for
# each outside library, no printing or exiting in the library, banned functions,
# a header comment in every file, and the lengths of files and functions.
#
#   tests/lint.sh [SRCDIR]      default: $srcdir, else the current folder
#
# The laws are rows of tests/lint/rules.txt, the excused lengths rows of
# tests/lint/exceptions.txt.  Exit status 1 on a violation.
root=${1:-${srcdir:-.}}
lint=$root/tests/lint
dirs=
for d in src include cl tests examples; do
    [ -d "$root/$d" ] && dirs="$dirs $root/$d"
done
if [ -z "$dirs" ] || [ ! -f "$lint/rules.txt" ]; then
    echo "lint: $root is no source tree of forge"
    exit 1
fi
LC_ALL=C
export LC_ALL
# shellcheck disable=SC2086  # the list of folders is meant to split
files=$(find $dirs -name golden -prune -o -type f \
    \( -name '*.c' -o -name '*.h' -o -name '*.cl' -o -name '*.clh' \) -print | sort)
# shellcheck disable=SC2086
exec awk -v root="$root" -f "$lint/lint.awk" "$lint/rules.txt" "$lint/exceptions.txt" $files
