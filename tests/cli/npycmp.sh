#!/bin/sh
# Compares float32 .npy files: npycmp.sh GOT WANT ROW BOUND
# GOT [n] or [1, n] against row ROW of WANT [rows, n]: the same count, every difference at most BOUND.
set -eu
LC_ALL=C
export LC_ALL
header() { # bytes before the data
    od -An -v -tu1 -j8 -N2 "$1" | awk '{ print 10 + $1 + 256 * $2 }'
}
values() {
    od -An -v -w4 -tf4 -j"$2" "$1"
}
got_off=$(header "$1")
n=$((($(wc -c <"$1") - got_off) / 4))
want_off=$(($(header "$2") + $3 * n * 4))
values "$1" "$got_off" >got.txt
values "$2" "$want_off" | head -n "$n" >want.txt
[ "$n" -gt 0 ] && [ "$(wc -l <want.txt)" -eq "$n" ] || { echo "npycmp: $n values, not as many in the other"; exit 1; }
paste got.txt want.txt | awk -v bound="$4" '
    { d = $1 - $2; if (d < 0) d = -d; if (!(d <= bound)) bad = 1; if (d > worst) worst = d }
    END { printf "%d values, %s\n", NR, bad ? "differ by " worst : "equal within " bound; exit bad }'
