#!/bin/sh
# From a fresh clone to text: installs what is needed, builds in build/, and
# lets the built-in model go on with a sentence.
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
make -s -j "$(getconf _NPROCESSORS_ONLN)" forge >&2
./forge generate --device cpu --echo -p "The capital of France is" -n 40
