#!/bin/sh
# Kernel texts into one C file: embed.sh DIR > kernels_text.c
#
# Every cl/*.cl and *.clh as an array of bytes (a string literal of that length
# would be no standard C) and one table of name, bytes, length.  program.c puts
# included files and #line marks together when it builds.
dir=${1:?embed.sh DIR}
LC_ALL=C
export LC_ALL
echo '/* Made by cl/embed.sh from the kernel files in cl/: change those. */'
echo '#include "backend/opencl/text.h"'
n=0
rows=
for f in "$dir"/*.cl "$dir"/*.clh; do
    name=${f##*/}
    echo "static const unsigned char text_$n[] = {"
    od -v -An -tx1 <"$f" | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g' || exit 1
    echo '0};'
    rows="$rows    { \"$name\", (const char *)text_$n, sizeof text_$n - 1 },
"
    n=$((n + 1))
done
echo 'const struct cl_text cl_texts[] = {'
printf '%s' "$rows"
echo '};'
echo 'const size_t cl_n_texts = sizeof cl_texts / sizeof *cl_texts;'
