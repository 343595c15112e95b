#!/bin/sh
# Adds up the results of the test programs named as arguments, run before in the
# current build folder, and prints one line: N passed, N failed, N skipped.
# Reads each program's own count from its log; a program without one counts as
# one test by automake's verdict.  Before it, of each program that failed, the lines
# that tell of its failures and the end of its log, at most 40 lines each: what fails on
# another machine may never fail here.  Fails when anything failed or nothing ran.
most=40

# What Check says of a case (file:line:F: or E:), a sanitizer of a finding, a script of either.
failures() { # LOG
    grep -E '^[^ ]*:[0-9]+:[FE]:|^[^ ]*\.test:[0-9]+: |^FAIL|runtime error:|^==[0-9]+==ERROR' "$1" | head -n $most
}

tell() { # LOG: why it failed
    [ -f "$1" ] || return 0
    [ "$(wc -l <"$1")" -le $most ] || failures "$1"
    echo "--- the end of $1:"
    tail -n $most "$1"
    echo "---"
}

passed=0 failed=0 skipped=0
for t in "$@"; do
    base=${t%.sh}
    verdict=$(sed -n 's/^:test-result: *\([A-Z]*\).*/\1/p' "$base.trs" 2>/dev/null | head -n 1)
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$base.log" 2>/dev/null | tail -n 1)
    if [ -z "$verdict" ]; then
        echo "$t: did not run"
        failed=$((failed + 1))
        continue
    fi
    if [ -n "$line" ]; then
        p=$(echo "$line" | cut -d ' ' -f 1)
        f=$(echo "$line" | cut -d ' ' -f 3)
        s=$(echo "$line" | cut -d ' ' -f 5)
        # a crash after the count, or a count that hides a failure
        [ "$verdict" = FAIL ] && [ "$f" -eq 0 ] && f=1
    else
        p=0 f=0 s=0
        case $verdict in PASS) p=1 ;; SKIP) s=1 ;; *) f=1 ;; esac
    fi
    if [ "$f" -ne 0 ]; then
        echo "$t: $f failed, see $base.log"
        tell "$base.log"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
