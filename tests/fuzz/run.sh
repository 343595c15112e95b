#!/bin/sh
# Replays every seed corpus through its parser's fuzz target.  A crash, a
# sanitizer report or a hang is a failure; what the parser answers is not judged.
set -u
limit=$((120 * ${CK_TIMEOUT_MULTIPLIER:-1})) # seconds of one seed: it hangs
passed=0 failed=0
for replay in tests/fuzz/replay_*; do
    case $replay in *.o | *.lo | *.c | *.log | *.trs) continue ;; esac
    [ -x "$replay" ] || continue
    name=${replay##*/replay_}
    for corpus in "$srcdir/tests/fuzz/corpus/$name" "$srcdir/tests/golden/bad/files"; do
        [ -d "$corpus" ] || continue
        for seed in "$corpus"/*; do
            [ -f "$seed" ] || continue
            if timeout "$limit" "$replay" "$seed" >/dev/null 2>"tests/fuzz/$name.err"; then
                passed=$((passed + 1))
            else
                failed=$((failed + 1))
                echo "FAIL: $name on $seed"
                tail -n 20 "tests/fuzz/$name.err"
            fi
        done
    done
    rm -f "tests/fuzz/$name.err"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
