/* The rank of a pair of tokens, asked for by bpe.c for every pair it sees.
 * Behind it a list of merges or the scores of a SentencePiece model; the caller
 * does not know which. */
#ifndef FORGE_TEXT_BPE_RANKS_H
#define FORGE_TEXT_BPE_RANKS_H

#include <stdint.h>

#include "text/bpe.h"

#define RANK_NONE UINT64_MAX

/* Lower goes first; RANK_NONE = the two do not merge.  *merged is the token they give.
 * joined: with scores, room for b->piece_max bytes. */
uint64_t bpe_rank(const struct bpe *b, char *joined, int32_t left, int32_t right, int32_t *merged);

#endif
