#!/bin/sh
# The server's files into one C file: embed.sh DATADIR > data_text.c
#
# Each as an array of bytes: a string literal of that length would be no standard C.
dir=${1:?embed.sh DATADIR}
LC_ALL=C
export LC_ALL
echo '/* Made by src/serve/embed.sh from files in data/: change those. */'
echo '#include "serve/server.h"'
put() {
    echo "const char serve_$1[] = {"
    od -v -An -tu1 <"$2" | sed 's/ *\([0-9][0-9]*\)/(char)\1,/g' || exit 1
    echo '0};'
    echo "const size_t serve_$1_len = sizeof serve_$1 - 1;"
}
put page "$dir/chat.html" && put openapi "$dir/openapi.json"
