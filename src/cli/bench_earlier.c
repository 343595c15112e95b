/* An earlier run of bench, read back from its JSON for --compare.
 * Owns what a file must hold to be one; every value of it is hostile until it
 * was looked at.  Knows no clock and prints no table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "cli/bench.h"
#include "cli/out.h"

#define FILE_MAX ((size_t)16 << 20)
#define NAME_MAX_LEN 64

struct earlier_test {
    char name[NAME_MAX_LEN];
    double tok_s;
};

struct earlier {
    char *path, *model, *device, *math;
    int64_t threads;
    struct earlier_test *tests;
    size_t n_tests;
};

static int none(const struct earlier *e, struct err *err, const char *why)
{
    return err_set(err, ERR_FORMAT, "%s: not a result of bench --json: %s", e->path, why);
}

/* A string that may be missing; false: memory is refused. */
static bool keep_str(const cJSON *root, const char *key, char **out)
{
    const cJSON *v = json_get(root, key);
    *out = cJSON_IsString(v) ? mem_strdup(v->valuestring) : NULL;
    return !cJSON_IsString(v) || *out;
}

static int read_test(struct earlier *e, const cJSON *item, struct err *err)
{
    struct earlier_test *t = &e->tests[e->n_tests];
    const cJSON *name = json_get(item, "test"), *speed = json_get(item, "tok_s");
    char why[160];
    if (!cJSON_IsObject(item) || !cJSON_IsString(name) || strlen(name->valuestring) >= NAME_MAX_LEN) {
        snprintf(why, sizeof why, "number %zu of \"results\" has no name under \"test\"", e->n_tests + 1);
        return none(e, err, why);
    }
    if (!cJSON_IsNumber(speed) || !isfinite(speed->valuedouble) || speed->valuedouble <= 0) {
        snprintf(why, sizeof why, "\"tok_s\" of test \"%.40s\" is not a number above 0", name->valuestring);
        return none(e, err, why);
    }
    snprintf(t->name, sizeof t->name, "%s", name->valuestring);
    t->tok_s = speed->valuedouble;
    e->n_tests++;
    return 0;
}

static int read_tests(struct earlier *e, const cJSON *root, struct err *err)
{
    const cJSON *results = json_get(root, "results"), *item;
    if (!cJSON_IsObject(root))
        return none(e, err, "it is no object");
    if (!cJSON_IsArray(results) || !results->child)
        return none(e, err, "it has no list \"results\"");
    e->tests = mem_array((size_t)cJSON_GetArraySize(results), sizeof *e->tests);
    if (!e->tests || !keep_str(root, "model", &e->model) || !keep_str(root, "device", &e->device) ||
        !keep_str(root, "math", &e->math))
        return err_set(err, ERR_NOMEM, "out of memory for %s", e->path);
    cJSON_ArrayForEach(item, results)
    {
        int rc = read_test(e, item, err);
        if (rc < 0)
            return rc;
    }
    return json_get_i64(root, "threads", 0, 1 << 20, &e->threads, e->path, err);
}

int earlier_open(struct earlier **out, const char *path, struct err *err)
{
    struct earlier *e = mem_array(1, sizeof *e);
    cJSON *root = NULL;
    char *text = NULL;
    size_t len = 0;
    int rc = 0;
    *out = NULL;
    if (!e || !(e->path = mem_strdup(path)))
        rc = err_set(err, ERR_NOMEM, "out of memory for %s", path);
    if (rc == 0)
        rc = map_read_all(path, FILE_MAX, &text, &len, err);
    if (rc == 0)
        rc = json_parse(&root, text, len, path, err);
    if (rc == 0)
        rc = read_tests(e, root, err);
    cJSON_Delete(root);
    free(text);
    if (rc < 0)
        earlier_free(e);
    else
        *out = e;
    return rc;
}

void earlier_free(struct earlier *e)
{
    if (!e)
        return;
    free(e->path);
    free(e->model);
    free(e->device);
    free(e->math);
    free(e->tests);
    free(e);
}

double earlier_tok_s(const struct earlier *e, const char *test)
{
    for (size_t i = 0; i < e->n_tests; i++)
        if (strcmp(e->tests[i].name, test) == 0)
            return e->tests[i].tok_s;
    return 0;
}

static void warn_str(const struct earlier *e, const char *what, const char *then, const char *now)
{
    if (then && strcmp(then, now) != 0)
        msg_warn("%s: %s was %.200s, it is %.200s now", e->path, what, then, now);
}

void earlier_warn(const struct earlier *e, const struct bench *b)
{
    char device[512];
    warn_str(e, "the model", e->model, b->model);
    warn_str(e, "the device", e->device, tool_device(b->t, device, sizeof device));
    warn_str(e, "math", e->math, b->fast ? "fast" : "exact");
    if (e->threads > 0 && e->threads != b->n_threads)
        msg_warn("%s: threads were %d, they are %d now", e->path, (int)e->threads, b->n_threads);
}

const char *earlier_path(const struct earlier *e)
{
    return e->path;
}

const char *earlier_tests(const struct earlier *e, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < e->n_tests && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%s", i ? ", " : "", e->tests[i].name);
    return out;
}
