/* The KV cache: page pools on each layer's instance, page tables per sequence
 * and KV group, allocated once.  Groups with a window give back the pages that
 * lie wholly behind it. */
#ifndef FORGE_RUN_KV_H
#define FORGE_RUN_KV_H

#include "model/model.h"

struct kv;

struct kv_params {
    enum dtype dtype; /* F16 or F32 */
    int page_size;    /* 1..256, or 0 = one page of n_ctx */
    int64_t n_ctx;    /* positions per sequence */
    int max_seqs;
    uint64_t mem;     /* bytes, 0 = what n_ctx * max_seqs needs */
    int chunk;        /* most positions reserved beyond a sequence's length at once: a group with a window holds
                         window + chunk positions per sequence; 0 = any number */
    bool keep;        /* full pages for later sequences: kv_keep, kv_find */
    uint64_t keep_mem; /* bytes of pages that are kept and in no other use, at most; 0 = all that are free */
};

/* The ranges of every value. */
int kv_check(const struct kv_params *p, struct err *err);
/* Bytes kv_new would allocate on the devices; for refusing with figures before weights are read.  Where even
 * one whole sequence needs more than p->mem, what that needs (kv_new refuses then).  UINT64_MAX: more than 2^64. */
uint64_t kv_bytes(const struct model_config *c, const struct kv_params *p);
/* Bytes of the host's memory that its tables take. */
uint64_t kv_host_bytes(const struct model_config *c, const struct kv_params *p);
int kv_new(struct kv **out, const struct model *m, const struct kv_params *p, struct err *err);
void kv_free(struct kv *kv);

const struct kv_layer *kv_layers(const struct kv *kv); /* [n_layers], for forward_new */
int kv_max_pages(const struct kv *kv, int group);      /* columns of the group's page tables */
uint64_t kv_size(const struct kv *kv);
int64_t kv_pages_free(const struct kv *kv, int group); /* also those that are kept for prefixes and in no other use */
int64_t kv_pages_kept(const struct kv *kv, int group); /* of these those in no other use */
int64_t kv_n_pages(const struct kv *kv, int group); /* free and held */
int64_t kv_positions(const struct kv *kv, int group); /* stored in pages that sequences hold, each once */
int64_t kv_page_size(const struct kv *kv);
int kv_max_seqs(const struct kv *kv);

/* A sequence slot 0..max_seqs-1, or -1 when all are taken. */
int kv_seq_open(struct kv *kv);
void kv_seq_close(struct kv *kv, int seq); /* gives its pages back */
/* Makes positions 0..n-1 storable; ERR_LIMIT with the figures when no page is left (nothing changes then). */
int kv_reserve(struct kv *kv, int seq, int64_t n, struct err *err);
/* The sequence is n positions long now; pages behind windows and beyond n are given back. */
void kv_set_len(struct kv *kv, int seq, int64_t n);
int64_t kv_len(const struct kv *kv, int seq);
/* True when the sequence can be cut to n <= len positions: no page that a window needs there was given back. */
bool kv_can_cut(const struct kv *kv, int seq, int64_t n);
/* Cuts the sequence to n <= len positions, or fewer: to the start of a page that others use or that is kept, to 0
 * where a window gave pages back.  Returns how many are left. */
int64_t kv_cut(struct kv *kv, int seq, int64_t n);
/* [max_pages] page numbers, -1 = not held; valid until the next reserve or set_len. */
const int32_t *kv_pages(const struct kv *kv, int seq, int group);
/* The same of all slots: [max_seqs, max_pages]. */
const int32_t *kv_tables(const struct kv *kv, int group);
/* The empty sequence `seq` begins as the first n positions of `from`, which can be cut to n: it holds the same pages,
 * and a copy of the last one where n ends inside.  Its length: less than n where that page could not be had. */
int64_t kv_fork(struct kv *kv, int seq, int from, int64_t n);
/* Pages that it would hold with others then. */
int64_t kv_pages_shared(const struct kv *kv, int from, int group, int64_t n);
/* Its first n positions, to which it can be cut, in a form that does not depend on pages: kv_dump_size bytes, which
 * depend on nothing that a lost device changes. */
uint64_t kv_dump_size(const struct model_config *c, enum dtype dtype, int64_t n);
int kv_dump(struct kv *kv, int seq, int64_t n, uint8_t *out, struct err *err);
/* The empty sequence has them: n, or 0 where pages or the device fail. */
int64_t kv_restore(struct kv *kv, int seq, int64_t n, const uint8_t *in);
/* Pages that the sequence, or one that holds none (seq -1), has still to take until it is n long. */
int64_t kv_pages_due(const struct kv *kv, int seq, int group, int64_t n);

/* ---- prefixes (prefix.c): full pages are kept after their sequences, and found by the ids they were made of.  Without
 * `keep` in the parameters nothing is, and nothing found ---- */

/* The ids of a sequence: a, then b. */
struct kv_ids {
    const int32_t *a, *b;
    size_t n_a, n_b;
};
/* Before kv_set_len(n): keeps the sequence's pages that are full by then. */
void kv_keep(struct kv *kv, int seq, const struct kv_ids *ids, int64_t n);
/* An empty sequence takes the kept pages of its longest known start of at most `most` positions, which are its length
 * then: returned. */
int64_t kv_find(struct kv *kv, int seq, const struct kv_ids *ids, int64_t most);

#endif
