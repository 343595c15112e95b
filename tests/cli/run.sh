#!/bin/sh
# Runs the command line's tests: every *.test file beside this script, or those named.
#
#     FORGE=build/forge tests/cli/run.sh [FILE.test ...]
#
# A .test file is a list of cases. A case begins with `$`; its lines are
#     $ COMMAND     run by sh in an empty folder of its own; `forge` is the program, $SRC the
#                   folder tests/, standard input is empty unless given
#     < LINE        a line of standard input
#     > LINE        a line of standard output: all of them together are all of it
#     ~ REGEX       an extended regular expression that a line of standard output must match
#     ! REGEX       the same for standard error
#     ^ REGEX       one that no line of standard error may match
#     = N           the exit status, 0 when not given; a usage error (2) must leave standard output empty
# and `#` begins a comment. FORGE_MODEL and FORGE_WEIGHTS are unset; a command may set them.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
SRC=$(dirname "$here")
FORGE=${FORGE:-./forge}
case $FORGE in
/*) ;;
*) FORGE=$(pwd)/$FORGE ;;
esac
if [ ! -x "$FORGE" ]; then
    echo "run.sh: $FORGE is no program; set FORGE" >&2
    exit 1
fi
unset FORGE_MODEL FORGE_WEIGHTS POSIXLY_CORRECT
LC_ALL=C
export FORGE SRC LC_ALL
top=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$top"; rm -rf "$top"' EXIT
trap 'exit 130' INT TERM
XDG_CACHE_HOME=$top/cache # compiled kernels stay out of the user's folder
export XDG_CACHE_HOME
limit=
command -v timeout >/dev/null 2>&1 && limit="timeout $((120 * ${CK_TIMEOUT_MULTIPLIER:-1}))"

total_passed=0
total_failed=0
status=0
passed=0
failed=0
file=
line_no=0
work=

# The state of the case being read.
begin_case() {
    command=$1
    case_line=$line_no
    want_status=0
    check_out=no
    work=$top/work
    [ -d "$work" ] && chmod -R u+w "$work" # copies of read-only sources
    rm -rf "$work" "$top/in" "$top/want" "$top/out-re" "$top/err-re" "$top/err-not"
    mkdir "$work"
    : >"$top/in"
    : >"$top/want"
    : >"$top/out-re"
    : >"$top/err-re"
    : >"$top/err-not"
}

fail() {
    case_ok=no
    echo "$file:$case_line: $1"
}

# Every expression of a file must match ($3 = yes) or not match ($3 = no) in another.
match_all() {
    while IFS= read -r regex; do
        found=no
        grep -E -q -e "$regex" "$2" && found=yes
        [ "$found" = "$3" ] || fail "$4: $regex"
    done <"$1"
}

end_case() {
    [ -n "$work" ] || return 0
    case_ok=yes
    (
        cd "$work" || exit 99
        # shellcheck disable=SC2086
        exec $limit sh -c 'forge() { "$FORGE" "$@"; }
'"$command" <"$top/in" >"$top/out" 2>"$top/err"
    )
    got_status=$?
    [ "$got_status" = "$want_status" ] || fail "status $got_status, not $want_status"
    [ "$want_status" != 2 ] || [ ! -s "$top/out" ] || fail "a usage error with standard output"
    if [ $check_out = yes ] && ! cmp -s "$top/want" "$top/out"; then
        fail "standard output differs:"
        diff "$top/want" "$top/out" | head -n 20
    fi
    match_all "$top/out-re" "$top/out" yes "not on standard output"
    match_all "$top/err-re" "$top/err" yes "not on standard error"
    match_all "$top/err-not" "$top/err" no "on standard error"
    if [ $case_ok = yes ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "  command: $command"
        sed 's/^/  stderr: /' "$top/err" | head -n 8
    fi
    work=
}

# What a line of a case holds after its mark and one space.
rest() {
    case $1 in
    ??*) printf '%s\n' "${1#??}" ;;
    *) echo ;;
    esac
}

run_file() {
    file=$(basename "$1")
    passed=0
    failed=0
    line_no=0
    while IFS= read -r line || [ -n "$line" ]; do
        line_no=$((line_no + 1))
        case $line in
        '$ '*)
            end_case
            begin_case "$(rest "$line")"
            continue
            ;;
        '#'* | '') continue ;;
        esac
        if [ -z "$work" ]; then
            echo "$file:$line_no: a case begins with \$"
            failed=$((failed + 1))
            continue
        fi
        case $line in
        '<'*) rest "$line" >>"$top/in" ;;
        '>'*)
            check_out=yes
            rest "$line" >>"$top/want"
            ;;
        '~ '*) rest "$line" >>"$top/out-re" ;;
        '! '*) rest "$line" >>"$top/err-re" ;;
        '^ '*) rest "$line" >>"$top/err-not" ;;
        '= '*) want_status=$(rest "$line") ;;
        *)
            echo "$file:$line_no: a line that is none of a case's"
            failed=$((failed + 1))
            ;;
        esac
    done <"$1"
    end_case
    echo "$file: $passed passed, $failed failed"
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    [ $failed = 0 ] || status=1
}

if [ $# = 0 ]; then
    set -- "$here"/*.test
fi
for test_file; do
    run_file "$test_file"
done
echo "$total_passed passed, $total_failed failed, 0 skipped"
# a run that did nothing proves nothing
[ $total_passed -gt 0 ] || status=1
exit $status
