/* Which files of a folder are the model, and the index of a sharded one.
 *
 * A folder is searched in the order of the table `choices`: an index decides
 * alone which files are read; other files beside it are not loaded.  Knows
 * names of files and the index's JSON, nothing of what is inside the weights. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "file/parts.h"

/* Weights-like files that lie beside models and are none (or not in a form we read). */
static const char *const strays[] = {
    "consolidated", "adapter_",    "optimizer", "scheduler", "training_args",
    "rng_state",    "random_states", "mmproj",    "scaler",
};

static bool ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

static bool is_stray(const char *name)
{
    for (size_t i = 0; i < sizeof(strays) / sizeof(strays[0]); i++)
        if (strncmp(name, strays[i], strlen(strays[i])) == 0)
            return true;
    return false;
}

/* ---- index ---- */

struct shard {
    const char *name; /* borrowed from the index */
    size_t n_tensors;
    const char *first; /* one of its tensors, for messages */
};

/* Relative, and no step upwards. */
static bool stays_inside(const char *name)
{
    if (!*name || *name == '/' || strchr(name, '\\'))
        return false;
    for (const char *p = name; p;) {
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || !p[2]))
            return false;
        p = strchr(p, '/');
        p = p ? p + 1 : NULL;
    }
    return true;
}

struct shards {
    struct shard *v;
    size_t n, cap;
    struct strmap by_name, tensors;
};

static int add_mapping(struct shards *s, const cJSON *item, struct err *err)
{
    const char *name = cJSON_IsString(item) ? item->valuestring : NULL;
    if (!name)
        return err_set(err, ERR_FORMAT, "weight_map: the shard of tensor %s is no string",
                       item->string);
    if (!stays_inside(name))
        return err_set(err, ERR_FORMAT, "weight_map: tensor %s: shard path \"%s\" leaves the folder",
                       item->string, name);
    int added = strmap_add(&s->tensors, item->string, strlen(item->string), 0);
    if (added == 0)
        return err_set(err, ERR_FORMAT, "weight_map: duplicate tensor %s", item->string);
    uint32_t at = (uint32_t)s->n;
    if (added > 0 && !strmap_find(&s->by_name, name, strlen(name), &at)) {
        struct shard *v = mem_grow(s->v, &s->cap, s->n + 1, sizeof(*v));
        if (v)
            s->v = v;
        if (!v || strmap_add(&s->by_name, name, strlen(name), at) < 0)
            added = -1;
        else
            v[s->n++] = (struct shard){.name = name, .first = item->string};
    }
    if (added < 0)
        return err_set(err, ERR_NOMEM, "no memory for the index");
    s->v[at].n_tensors++;
    return 0;
}

/* Reads the shards in the index's order; a missing one is named with what it would hold. */
static int read_shards(struct weights *w, const struct shards *s, const char *dir, struct err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct shard *sh = &s->v[i];
        char *path = path_join(dir, sh->name);
        if (!path)
            return err_set(err, ERR_NOMEM, "%s: no memory for a path", sh->name);
        int rc = 0;
        if (!path_exists(path))
            rc = err_set(err, ERR_IO, "%s: shard is missing; the index says it holds %zu tensors (%s%s)",
                         path, sh->n_tensors, sh->first, sh->n_tensors > 1 ? ", ..." : "");
        else
            rc = weights_add_part(w, path, err);
        free(path);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Every tensor of the map must have come from the shard the map names. */
static int check_map(const struct weights *w, const struct shards *s, const cJSON *map,
                     struct err *err)
{
    for (const cJSON *item = map->child; item; item = item->next) {
        uint32_t shard = 0;
        strmap_find(&s->by_name, item->valuestring, strlen(item->valuestring), &shard);
        const struct weight *t = weights_find(w, item->string);
        if (!t)
            return err_set(err, ERR_FORMAT, "tensor %s is not in its shard %s", item->string,
                           item->valuestring);
        if (t->file != (int)shard)
            return err_set(err, ERR_FORMAT, "tensor %s is in %s, not in its shard %s", item->string,
                           weights_file(w, t->file), item->valuestring);
    }
    return 0;
}

int folder_read_index(struct weights *w, const char *index_path, struct err *err)
{
    struct shards s = {0};
    strmap_init(&s.by_name);
    strmap_init(&s.tensors);
    char *dir = path_dirname(index_path);
    cJSON *root = NULL;
    const cJSON *map = NULL;
    int rc = dir ? json_parse_file(&root, index_path, err)
                 : err_set(err, ERR_NOMEM, "%s: no memory for a path", index_path);
    if (rc == 0) {
        map = json_get(root, "weight_map");
        if (!cJSON_IsObject(map))
            rc = err_set(err, ERR_FORMAT,
                         "%s: a JSON text without \"weight_map\", so no index of a sharded model; give "
                         "the model's folder or its weights file",
                         index_path);
        else if (!map->child)
            rc = err_set(err, ERR_FORMAT, "%s: weight_map is empty", index_path);
    }
    if (rc == 0) {
        for (const cJSON *item = map->child; rc == 0 && item; item = item->next)
            rc = add_mapping(&s, item, err);
        if (rc < 0)
            rc = err_wrap(err, "%s", index_path);
    }
    if (rc == 0)
        rc = read_shards(w, &s, dir, err);
    if (rc == 0 && check_map(w, &s, map, err) < 0)
        rc = err_wrap(err, "%s", index_path);
    cJSON_Delete(root);
    free(dir);
    free(s.v);
    strmap_fini(&s.by_name);
    strmap_fini(&s.tensors);
    return rc;
}

/* ---- folder ---- */

static bool named_safetensors_index(const char *n) { return !strcmp(n, "model.safetensors.index.json"); }
static bool named_safetensors(const char *n) { return !strcmp(n, "model.safetensors"); }
static bool any_safetensors(const char *n) { return ends(n, ".safetensors"); }
static bool named_bin_index(const char *n) { return !strcmp(n, "pytorch_model.bin.index.json"); }
static bool named_bin(const char *n) { return !strcmp(n, "pytorch_model.bin"); }
static bool any_pth(const char *n) { return ends(n, ".pth") || ends(n, ".bin"); }

/* Later parts of a split GGUF follow from the first. */
static bool any_gguf(const char *n)
{
    unsigned no = 1, count = 1;
    size_t stem = 0;
    return ends(n, ".gguf") && (!gguf_split_name(n, &no, &count, &stem) || no == 1);
}

static const struct choice {
    bool (*match)(const char *name);
    bool index;
    const char *what;
} choices[] = {
    {named_safetensors_index, true, "index"},
    {named_safetensors, false, "file"},
    {any_safetensors, false, ".safetensors files, and no model.safetensors.index.json says which to load"},
    {named_bin_index, true, "index"},
    {named_bin, false, "file"},
    {any_pth, false, ".pth or .bin files"},
    {any_gguf, false, ".gguf models"},
};

/* The names matching one choice; more than one is an error that lists them. */
static int pick(char **names, size_t n, const struct choice *c, const char *dir, const char **out,
                struct err *err)
{
    size_t found = 0;
    struct buf list;
    buf_init(&list);
    for (size_t i = 0; i < n; i++) {
        if (is_stray(names[i]) || !c->match(names[i]))
            continue;
        *out = names[i];
        if (found++ < 4)
            buf_printf(&list, "%s%s", found > 1 ? ", " : "", names[i]);
    }
    int rc = found == 1;
    if (found > 1)
        rc = err_set(err, ERR_ARG, "%s: the folder holds %zu %s (%s%s); name the one to load", dir,
                     found, c->what, buf_str(&list), found > 4 ? ", ..." : "");
    buf_fini(&list);
    return rc;
}

static int refuse_folder(char **names, size_t n, const char *dir, struct err *err)
{
    const char *stray = NULL;
    for (size_t i = 0; i < n && !stray; i++)
        if (is_stray(names[i]))
            stray = names[i];
    return err_set(err, ERR_IO,
                   "%s: no model file in this folder (looked for model.safetensors.index.json, "
                   "*.safetensors, pytorch_model.bin.index.json, *.bin, *.pth, *.gguf)%s%s%s",
                   dir, stray ? "; " : "", stray ? stray : "", stray ? " is none" : "");
}

int folder_read(struct weights *w, const char *dir, struct err *err)
{
    char **names = NULL;
    size_t n = 0;
    int rc = path_list(dir, &names, &n, err);
    if (rc < 0)
        return rc;
    const char *name = NULL;
    const struct choice *c = choices;
    for (size_t i = 0; rc == 0 && i < sizeof(choices) / sizeof(choices[0]); i++) {
        c = &choices[i];
        rc = pick(names, n, c, dir, &name, err);
    }
    if (rc == 0)
        rc = refuse_folder(names, n, dir, err);
    if (rc > 0) {
        char *path = path_join(dir, name);
        if (!path)
            rc = err_set(err, ERR_NOMEM, "%s: no memory for a path", dir);
        else
            rc = c->index ? folder_read_index(w, path, err) : weights_add_part(w, path, err);
        free(path);
    }
    path_list_free(names, n);
    return rc;
}
