#!/bin/sh
# From a fresh clone to text: installs what is needed, builds in build/, and
# lets the built-in model go on with a sentence.
set -eu
cd "$(dirname "$0")/.."
scripts/install-deps.sh
[ -x configure ] || autoreconf -i >/dev/null
mkdir -p build
cd build
[ -f Makefile ] || ../configure -q
make -s -j "$(getconf _NPROCESSORS_ONLN)" forge
./forge generate --echo -p "The capital of France is" -n 40
