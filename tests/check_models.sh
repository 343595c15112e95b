#!/bin/sh
# Obtains trained models and compares forge with the stored results on them.
# SmolLM2 by default; MODELS="gemma qwen" asks for others, whose terms are their
# own.  Models that are in FORGE_MODELS_DIR (default: weights) already are used.
# Run from the build folder (make check-models).
set -u
dir=${FORGE_MODELS_DIR:-weights}
MODELS="${MODELS:-smollm2}" sh "$srcdir/tests/fetch_models.sh" "$dir" ||
    echo "could not be fetched; going on with what is in $dir" >&2
FORGE_MODELS_DIR=$dir ./tests/test_real
