#!/bin/sh
# From a fresh clone to a tested build: installs what is needed, builds in
# build/, runs every test, and ends with the line N passed, N failed, N skipped.
set -eu
cd "$(dirname "$0")/.."
scripts/install-deps.sh
if [ -f config.status ]; then
    echo "the source folder itself is configured: run 'make distclean' first" >&2
    exit 1
fi
[ -x configure ] || autoreconf -i >/dev/null 2>&1
mkdir -p build
cd build
[ -f Makefile ] || ../configure -q
jobs=$(getconf _NPROCESSORS_ONLN)
make -s -j "$jobs"
make -s -j "$jobs" -k check || true
make -s check-summary
