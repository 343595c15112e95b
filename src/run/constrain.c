/* The grammars of an engine's requests, and the mask that a grammar puts on the
 * ids of a step.  Grammars are kept with what they have met: requests of the same
 * schema find the masks that earlier ones made. */
#include "run/constrain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "text/json_schema.h"
#include "text/token_trie.h"

/* A grammar by its text. */
struct constrain_text {
    struct constrain_text *next;
    char *text;
    bool is_schema;
    int users;
    struct grammar *g;
};

struct constrain {
    struct constrain_pool *pool;
    struct constrain_text *text;
    const struct token_trie *trie;
    const struct loaded *l;
    bool skip_space, ignore_eos;
    uint64_t *mask; /* [n_vocab / 64] of the next id */
    size_t n_words;
};

static void free_text(struct constrain_text *t)
{
    grammar_free(t->g);
    free(t->text);
    free(t);
}

int constrain_pool_init(struct constrain_pool *p, struct err *err)
{
    *p = (struct constrain_pool){.list_lock = mutex_new(), .trie_lock = mutex_new()};
    return p->list_lock && p->trie_lock ? 0 : err_set(err, ERR_NOMEM, "no memory for a lock");
}

void constrain_pool_fini(struct constrain_pool *p)
{
    while (p->kept) {
        struct constrain_text *next = p->kept->next;
        free_text(p->kept);
        p->kept = next;
    }
    token_trie_free(p->trie);
    mutex_free(p->list_lock);
    mutex_free(p->trie_lock);
    *p = (struct constrain_pool){0};
}

/* Those not used for longest go, while there are more than are kept. */
static void trim(struct constrain_pool *p)
{
    int n = 0;
    for (struct constrain_text **at = &p->kept; *at;) {
        struct constrain_text *t = *at;
        if (++n <= CONSTRAIN_KEPT || t->users > 0) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        free_text(t);
    }
}

/* The one of this text, which has one user more; it becomes the first. */
static struct constrain_text *find_text(struct constrain_pool *p, const char *text, bool is_schema)
{
    for (struct constrain_text **at = &p->kept; *at; at = &(*at)->next) {
        struct constrain_text *t = *at;
        if (t->is_schema != is_schema || strcmp(t->text, text) != 0)
            continue;
        *at = t->next;
        t->next = p->kept;
        p->kept = t;
        t->users++;
        return t;
    }
    return NULL;
}

static int make_text(struct constrain_text **out, const char *text, bool is_schema, struct err *err)
{
    struct constrain_text *t = mem_array(1, sizeof *t);
    *out = NULL;
    if (!t || !(t->text = mem_strdup(text))) {
        free(t);
        return err_set(err, ERR_NOMEM, "no memory for a grammar");
    }
    t->is_schema = is_schema;
    t->users = 1;
    int rc = is_schema ? grammar_from_schema(&t->g, text, strlen(text), err) : grammar_from_gbnf(&t->g, text, strlen(text), err);
    if (rc < 0)
        free_text(t);
    else
        *out = t;
    return rc;
}

/* Made without the lock, for which a step may wait. */
static int read_text(struct constrain_text **out, struct constrain_pool *p, const char *text, bool is_schema, struct err *err)
{
    struct constrain_text *made = NULL;
    mutex_lock(p->list_lock);
    *out = find_text(p, text, is_schema);
    mutex_unlock(p->list_lock);
    if (*out)
        return 0;
    int rc = make_text(&made, text, is_schema, err);
    if (rc < 0)
        return rc;
    mutex_lock(p->list_lock);
    *out = find_text(p, text, is_schema); /* another thread was faster */
    if (!*out) {
        made->next = p->kept;
        *out = p->kept = made;
        made = NULL;
    }
    trim(p);
    mutex_unlock(p->list_lock);
    if (made)
        free_text(made);
    return 0;
}

static int find_trie(const struct token_trie **out, struct constrain_pool *p, const struct loaded *l, struct err *err)
{
    mutex_lock(p->trie_lock);
    int rc = p->trie ? 0 : token_trie_new(&p->trie, l->tokenizer, l->config->n_vocab, err);
    *out = p->trie;
    mutex_unlock(p->trie_lock);
    return rc;
}

int constrain_new(struct constrain **out, struct constrain_pool *p, const struct loaded *l,
                  const struct constrain_params *params, struct err *err)
{
    const char *text = params->grammar ? params->grammar : params->json_schema;
    int64_t n_vocab = l->config->n_vocab;
    *out = NULL;
    if (params->grammar && params->json_schema)
        return err_set(err, ERR_ARG, "grammar and json_schema are both given; a text can follow one of them");
    struct constrain *c = mem_array(1, sizeof *c);
    if (c)
        c->n_words = ((size_t)n_vocab + 63) / 64;
    if (!c || !(c->mask = mem_array(c->n_words, sizeof *c->mask))) {
        free(c);
        return err_set(err, ERR_NOMEM, "no memory for a mask of %lld ids", (long long)n_vocab);
    }
    c->pool = p;
    c->l = l;
    c->ignore_eos = params->ignore_eos;
    int rc = read_text(&c->text, p, text, !params->grammar, err);
    if (rc == ERR_LIMIT && err)
        rc = err->code = ERR_ARG; /* too large is the caller's */
    if (rc == 0)
        rc = find_trie(&c->trie, p, l, err);
    if (rc == 0)
        rc = token_trie_skips_space(&c->skip_space, l->tokenizer, params->prompt, params->n_prompt, !params->keep_special, err);
    if (rc < 0)
        constrain_free(c);
    else
        *out = c;
    return rc;
}

void constrain_free(struct constrain *c)
{
    if (!c)
        return;
    if (c->text) {
        mutex_lock(c->pool->list_lock);
        c->text->users--;
        mutex_unlock(c->pool->list_lock);
    }
    free(c->mask);
    free(c);
}

void constrain_begin(struct constrain *c, struct constrain_place *at)
{
    constrain_end(at);
    matcher_begin(&at->m, c->text->g);
}

void constrain_end(struct constrain_place *at)
{
    matcher_end(&at->m);
    at->begun = false;
}

int constrain_look(struct constrain *c, struct constrain_place *at, struct err *err)
{
    int64_t n = grammar_mask(&at->m, c->trie, c->skip_space && !at->begun, c->mask, err);
    bool may_end = !c->ignore_eos && matcher_may_end(&at->m);
    if (n < 0)
        return (int)n;
    for (int i = 0; i < c->l->config->n_eos && !c->ignore_eos; i++) {
        int32_t id = c->l->config->eos[i];
        uint64_t bit = (uint64_t)1 << (id & 63);
        if (id < 0 || id >= c->trie->n_ids)
            continue;
        n += (int)may_end - ((c->mask[id / 64] & bit) != 0); /* the grammar may know it as a text, too */
        c->mask[id / 64] = may_end ? c->mask[id / 64] | bit : c->mask[id / 64] & ~bit;
    }
    if (n > 0)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "the grammar allows no token here: what it asks for next is not in the vocabulary, or lies "
                                         "more than 1000 rules deep");
}

void constrain_mask(void *user, float *logits, int64_t n_vocab)
{
    const struct constrain *c = user;
    for (size_t w = 0; w < c->n_words; w++) {
        uint64_t allowed = c->mask[w];
        int64_t at = (int64_t)w * 64, n = n_vocab - at < 64 ? n_vocab - at : 64;
        if (allowed == UINT64_MAX)
            continue;
        for (int64_t i = 0; i < n; i++)
            logits[at + i] = allowed >> i & 1 ? logits[at + i] : -INFINITY;
    }
}

int constrain_take(struct constrain *c, struct constrain_place *at, int32_t id, struct err *err)
{
    size_t len;
    const char *bytes = token_trie_bytes(c->trie, id, &len);
    size_t cut = c->skip_space && !at->begun && len > 0 && bytes[0] == ' ';
    int rc = matcher_accept(&at->m, bytes + cut, len - cut, err);
    at->begun = true;
    if (rc == 0)
        rc = err_set(err, ERR_INTERNAL, "id %d was chosen, which the grammar does not allow", (int)id);
    return rc < 0 ? rc : 0;
}

bool constrain_done(const struct constrain_place *at)
{
    return at->m.g && !matcher_may_go_on(&at->m);
}
