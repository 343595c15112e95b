/* A sequence in a file: its ids, and what a model has stored of them.
 *
 * Independent of page sizes.  A file says which model, math and KV type it is of and
 * how long it is, and has a checksum: another one's, a shorter and a damaged one are
 * refused, and ids are outside bytes like those of a caller. */
#ifndef FORGE_RUN_SESSION_H
#define FORGE_RUN_SESSION_H

#include "run/load.h"

struct session;

/* Checks the file, and maps it. */
int session_open(struct session **out, struct loaded *l, const char *path, struct err *err);
void session_close(struct session *s); /* NULL is safe */
const int32_t *session_ids(const struct session *s, size_t *n); /* at least one */
/* The empty sequence begins with what is stored: how many positions, fewer than there are ids; 0 where there is no room. */
int64_t session_restore(const struct session *s, struct kv *kv, int seq);

/* Writes ids, and of the sequence what is stored before the last one. */
int session_save(struct loaded *l, int seq, const struct kv_ids *ids, const char *path, struct err *err);

#endif
