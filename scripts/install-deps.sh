#!/bin/sh
# Installs what forge needs on Debian 12 (and its kin): compiler, autotools,
# libraries.  Does nothing when all is there; elsewhere it names what to install.
set -eu
packages="gcc make libc6-dev autoconf automake libtool pkg-config libcjson-dev libpcre2-dev libutf8proc-dev
    check ocl-icd-opencl-dev opencl-headers libclblast-dev libmicrohttpd-dev pocl-opencl-icd"
if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "not a Debian system: install the equivalents of:" $packages >&2
    exit 0
fi
missing=
for p in $packages; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
echo "installing:$missing" >&2
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
