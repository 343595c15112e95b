#!/bin/sh
# Holds tests/pitfalls.md to what is there: every known row once, and in each a test that exists, or words that
# say why there is none.
#
#   tests/pitfalls.sh [SRCDIR]      default: $srcdir, else the current folder
root=${1:-${srcdir:-.}}
page=$root/tests/pitfalls.md
failed=0
n=0
bad() {
    failed=$((failed + 1))
    echo "pitfalls: $1"
}

# exists NAME: a test by the name the page gives it
exists() {
    case $1 in
    cl_faults | lint) [ -f "$root/tests/$1.sh" ] ;;
    cl_matrix:*) grep -q -E "(if|^) *kind ${1#*:} |kind=${1#*:}\$|for dir in .*${1#*:}" "$root/tests/cl_matrix.sh" ;;
    test_*:*) grep -q "^START_TEST(${1#*:})" "$root/tests/${1%%:*}.c" ;;
    *) false ;;
    esac
}

rows() { # LETTER HOW_MANY
    i=1
    while [ $i -le "$2" ]; do
        [ "$(grep -c "^| $1$i |" "$page")" -eq 1 ] || bad "row $1$i is there $(grep -c "^| $1$i |" "$page") times"
        i=$((i + 1))
    done
}
rows T 7
rows D 12
rows M 12
rows G 11
rows N 8
rows C 7
rows Q 7
rows H 5
rows B 13

while IFS='|' read -r _ row _ held _; do
    case $row in *[A-Z][0-9]*) ;; *) continue ;; esac
    n=$((n + 1))
    held_by=0
    # shellcheck disable=SC2016 # backquotes of the page
    for name in $(echo "$held" | grep -o '`[a-z_]*:[a-z0-9_-]*`\|`cl_faults`\|`lint`' | tr -d '`'); do
        held_by=1
        exists "$name" || bad "row$row: there is no test $name"
    done
    case $held in *"by construction: "* | *": not here"* | *"CPU family: no barrier"*) held_by=1 ;; esac
    [ $held_by -eq 1 ] || bad "row$row: neither a test nor a reason"
done <"$page"
[ "$n" -eq 82 ] || bad "$n rows, not 82"
echo "$((n > failed ? n - failed : 0)) passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
