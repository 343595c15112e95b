#!/bin/sh
# What `--math fast` changes: for each model a row with its Kullback-Leibler divergence from `exact`, position by
# position over a text, as `forge perplexity --kl-base` counts it.
#
#     scripts/compare-math.sh TEXT.txt MODEL.gguf ...
#
# FORGE   the program (build/forge)
# DEVICE  where it runs (cpu)
# WINDOW  positions scored together (512)
set -u
LC_ALL=C
export LC_ALL
FORGE=${FORGE:-build/forge}
DEVICE=${DEVICE:-cpu}
WINDOW=${WINDOW:-512}
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
text=$1
shift
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

score() { # MODEL MATH more flags: perplexity's JSON object into $work/scored
    model=$1 math=$2
    shift 2
    "$FORGE" perplexity -m "$model" --device "$DEVICE" --math "$math" --kv f32 --window "$WINDOW" -f "$text" --json -q "$@" >"$work/scored"
}

field() { # NAME FORMAT
    # shellcheck disable=SC2059  # the format is ours
    printf "$2" "$(tr ',' '\n' <"$work/scored" | sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" | head -n 1)"
}

echo "| model | perplexity, exact | fast | KL mean | KL most | mean difference of log-probability | same best id |"
echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
status=0
for model; do
    score "$model" exact --kl-save "$work/base" && exact=$(field perplexity %.4f) &&
        score "$model" fast --kl-base "$work/base" || {
        echo "compare-math: $model could not be scored" >&2
        status=1
        continue
    }
    echo "| $(basename "$model") | $exact | $(field perplexity %.4f) | $(field kl_mean %.1e) | $(field kl_max %.1e) |" \
        "$(field logprob_diff_mean %.1e) | $(field top1_agreement %.4f) |"
done
exit $status
