/* The list of golden models: golden/models by name, golden/containers and
 * golden/extra by their indexes.  Must not know what runs them; the contract
 * is golden_list.h. */
#include "tests/golden_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

struct list {
    struct golden *v;
    size_t n, cap;
};

static bool add(struct list *l, const char *file, const char *expected)
{
    struct golden *v = mem_grow(l->v, &l->cap, l->n + 1, sizeof *v);
    if (v == NULL)
        return false;
    l->v = v;
    snprintf(v[l->n].file, sizeof v[l->n].file, "golden/%s", file);
    snprintf(v[l->n].expected, sizeof v[l->n].expected, "golden/%s", expected);
    l->n++;
    return true;
}

/* The rows of an index that say what a file computes. */
static bool add_index(struct list *l, const char *name, bool below_expected)
{
    char path[4096], expected[90];
    const char *dir = getenv("FORGE_TEST_SRCDIR");
    struct err err = {0};
    cJSON *index;
    bool ok = true;

    snprintf(path, sizeof path, "%s/%s", dir != NULL && *dir != '\0' ? dir : "tests", name);
    json_parse_file(&index, path, &err);
    const cJSON *files = json_get(index, "files");
    if (files == NULL)
        fprintf(stderr, "%s: %s\n", path, err.msg);
    for (const cJSON *row = files != NULL ? files->child : NULL; ok && row != NULL; row = row->next) {
        const cJSON *e = json_get(row, "expected"), *file = json_get(row, "file");
        if (!cJSON_IsString(e) || !cJSON_IsString(file))
            continue;
        snprintf(expected, sizeof expected, "%s%s", below_expected ? "expected/" : "", e->valuestring);
        ok = add(l, file->valuestring, expected);
    }
    cJSON_Delete(index);
    return ok && files != NULL;
}

bool golden_list(struct golden **out, size_t *n)
{
    static const char *const models[] = {"gemma3",    "llama",        "llama-sharded", "llama3-rope",
                                         "mistral",   "phi3",         "qwen2",         "qwen3",
                                         "qwen3-moe", "qwen3-untied", "smollm"};
    struct list l = {0};
    char file[64], expected[64];
    bool ok = true;

    for (size_t i = 0; ok && i < sizeof models / sizeof *models; i++) {
        snprintf(file, sizeof file, "models/%s", models[i]);
        snprintf(expected, sizeof expected, "expected/%s", models[i]);
        ok = add(&l, file, expected);
    }
    ok = ok && add_index(&l, "golden/containers/index.json", true) &&
         add_index(&l, "golden/extra/index.json", false);
    *out = l.v;
    *n = l.n;
    return ok;
}

/* Does a blank-separated word of `words` stand in `path`? */
static bool is_named(const char *path, const char *words)
{
    char word[128];

    for (size_t len; *(words += strspn(words, " ")) != '\0'; words += len) {
        len = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)len, words);
        if (strstr(path, word) != NULL)
            return true;
    }
    return false;
}

size_t golden_choose(struct golden *list, size_t n, const char *words)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        struct golden g = list[i];
        if (!is_named(g.file, words))
            continue;
        list[i] = list[kept];
        list[kept++] = g;
    }
    return kept;
}
