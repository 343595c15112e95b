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
#include "base/utf8.h"
#include "cli/bench.h"
#include "cli/out.h"

#define FILE_MAX ((size_t)16 << 20)
#define NAME_MAX_LEN 64

struct earlier_test {
    char name[NAME_MAX_LEN];
    double tok_s;
};

struct earlier {
    char path[512];                                   /* printable */
    char setting[BENCH_SETTINGS][BENCH_SETTING_LEN]; /* "" = not told */
    struct earlier_test *tests;
    size_t n_tests;
};

static int none(const struct earlier *e, struct err *err, const char *why)
{
    return err_set(err, ERR_FORMAT, "%s: not a result of bench --json: %s", e->path, why);
}

/* As bench_setting_value writes them; what an older version did not tell is missing. */
static int read_setting(struct earlier *e, const cJSON *root, int i, struct err *err)
{
    const cJSON *v = json_get(root, bench_settings[i].key);
    bool text = bench_setting_is_text(i);
    char why[80];
    if (!v || cJSON_IsNull(v))
        return 0;
    if (text ? !cJSON_IsString(v) : !cJSON_IsNumber(v) && !cJSON_IsBool(v)) {
        snprintf(why, sizeof why, "\"%s\" is not a %s", bench_settings[i].key, text ? "text" : "number, true or false");
        return none(e, err, why);
    }
    if (text)
        utf8_printable(e->setting[i], BENCH_SETTING_LEN, v->valuestring, strlen(v->valuestring));
    else if (cJSON_IsNumber(v))
        snprintf(e->setting[i], BENCH_SETTING_LEN, "%.15g", v->valuedouble);
    else
        snprintf(e->setting[i], BENCH_SETTING_LEN, "%s", cJSON_IsTrue(v) ? "true" : "false");
    return 0;
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
    utf8_printable(t->name, sizeof t->name, name->valuestring, strlen(name->valuestring));
    if (!cJSON_IsNumber(speed) || !isfinite(speed->valuedouble) || speed->valuedouble <= 0) {
        snprintf(why, sizeof why, "\"tok_s\" of test \"%s\" is not a number above 0", t->name);
        return none(e, err, why);
    }
    t->tok_s = speed->valuedouble;
    e->n_tests++;
    return 0;
}

static int read_tests(struct earlier *e, const cJSON *root, struct err *err)
{
    const cJSON *results = json_get(root, "results"), *item;
    if (!cJSON_IsObject(root))
        return none(e, err, "it is no object");
    if (!cJSON_IsArray(results))
        return none(e, err, "it has no list \"results\"");
    if (!results->child)
        return none(e, err, "its list \"results\" is empty");
    e->tests = mem_array((size_t)cJSON_GetArraySize(results), sizeof *e->tests);
    if (!e->tests)
        return err_set(err, ERR_NOMEM, "out of memory for %s", e->path);
    int rc = 0;
    for (int i = 0; i < BENCH_SETTINGS && rc == 0; i++)
        rc = read_setting(e, root, i, err);
    cJSON_ArrayForEach(item, results)
    {
        if (rc < 0 || (rc = read_test(e, item, err)) < 0)
            break;
    }
    return rc;
}

int earlier_open(struct earlier **out, const char *path, struct err *err)
{
    struct earlier *e = mem_array(1, sizeof *e);
    cJSON *root = NULL;
    char *text = NULL;
    size_t len = 0;
    int rc = 0;
    *out = NULL;
    if (e)
        utf8_printable(e->path, sizeof e->path, path, strlen(path));
    else
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

void earlier_warn(const struct earlier *e, const struct bench *b)
{
    char now[BENCH_SETTING_LEN];
    for (int i = 0; i < BENCH_SETTINGS; i++) {
        const struct bench_setting *s = &bench_settings[i];
        bench_setting_value(b, i, now);
        if (e->setting[i][0] && strcmp(e->setting[i], now) != 0)
            msg_warn("%s: %s %s %s, %s %s now", e->path, s->what, s->plural ? "were" : "was", e->setting[i],
                     s->plural ? "they are" : "it is", now);
    }
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
