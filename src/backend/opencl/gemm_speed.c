/* Speeds of our kernels and of CLBlast: measured on request or at the first
 * use of a class, kept in the cache folder by device, driver, our kernels'
 * texts and CLBlast's version and parameters.
 *
 * A file that is missing, spoiled or cannot be written means only that things
 * are measured again.  Must not know how either multiplies. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/gemm.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"

#define FILE_MOST ((size_t)1 << 20)

/* ---- the file ---- */
static char *speed_path(struct clb *c)
{
    const struct cl_gemm *g = c->gemm;
    const char *dir = c->params.kernel_cache, *version = blast_version();
    char name[64];
    uint64_t id[2];

    if (dir == NULL || dir[0] == '\0')
        return NULL;
    cl_identity(&c->base, id);
    for (int i = 0; i < 2; i++) {
        id[i] = hash_bytes(version, strlen(version), id[i]);
        id[i] = hash_bytes(buf_str(&g->kernels), g->kernels.len, id[i]);
    }
    snprintf(name, sizeof name, "forge-%016" PRIx64 "%016" PRIx64 ".gemm", id[0], id[1]);
    return path_join(dir, name);
}

void gemm_speed_open(struct clb *c)
{
    struct cl_gemm *g = c->gemm;
    char *text;
    size_t len;

    g->path = speed_path(c);
    if (g->path == NULL || !path_is_file(g->path) || map_read_all(g->path, FILE_MOST, &text, &len, NULL) != 0)
        return;
    gemm_file_parse(c, g->path, text, len, NULL);
    free(text);
}

static int save(struct clb *c, const char *path, struct err *err)
{
    struct buf text;
    int rc;

    buf_init(&text);
    gemm_file_print(c, &text);
    rc = buf_failed(&text) ? err_set(err, ERR_NOMEM, "%s: no memory for what was measured", path)
                           : path_replace(path, text.data, text.len, NULL, 0, err);
    buf_fini(&text);
    return rc;
}

void gemm_speed_keep(struct clb *c)
{
    struct err err = {0};

    if (c->gemm->path != NULL && save(c, c->gemm->path, &err) != 0)
        log_debug(LOG_CL, "%s: %s: measured again at the next start", c->base.device, err.msg);
}

/* ---- on request ---- */
static int alloc_random(struct clb *c, struct tensor *t, int64_t rows, int64_t cols, struct err *err)
{
    size_t n;
    float *v = mem_mul((size_t)rows, (size_t)cols, &n) ? mem_array(n, sizeof *v) : NULL;
    uint64_t seed = 1;

    if (v == NULL)
        return err_set(err, ERR_NOMEM, "no memory for [%" PRId64 ", %" PRId64 "] values", rows, cols);
    for (size_t i = 0; i < n; i++) {
        seed = hash_u64(seed + i);
        v[i] = (float)(seed >> 40) * (2.0f / (1 << 24)) - 1.0f;
    }
    int rc = op_alloc(&c->base, t, DTYPE_F32, rows, cols, err);
    if (rc == 0)
        op_write(&c->base, t, v);
    free(v);
    return rc;
}

int cl_tune_gemm(struct backend *be, const struct tensor *w, int64_t n_rows, int reps, struct op_gemm_speed *out,
                 struct err *err)
{
    struct clb *c = (struct clb *)be;
    struct tensor x = {0}, y = {0};
    struct gemm_class few = {.dtype = w->dtype, .n = w->rows, .k = w->cols, .rows = n_rows}, *k;
    int rc;

    *out = (struct op_gemm_speed){0};
    if (c->gemm == NULL)
        return err_set(err, ERR_UNSUPPORTED, "%s: CLBlast is not in use there%s", be->device,
                       blast_there() ? "" : ": this build has none");
    /* so few rows are never CLBlast's: told, and not kept */
    k = n_rows < GEMM_ROWS ? &few : gemm_class_of(c->gemm, w->dtype, w->rows, w->cols, n_rows);
    if (k == NULL)
        return err_set(err, ERR_NOMEM, "no memory for the speed of a product");
    op_begin(be);
    rc = alloc_random(c, &x, n_rows, w->cols, err);
    if (rc == 0)
        rc = op_alloc(be, &y, DTYPE_F32, n_rows, w->rows, err);
    if (rc == 0) {
        k->measured = false;
        int wrong = gemm_compare(c, k, &y, &x, w, NULL, reps, &out->error, out->why, sizeof out->why);
        rc = op_sync(be, err);
        out->own_s = k->own_s;
        out->other_s = k->measured && wrong == 0 ? k->blast_s : 0;
        k->measured = k->measured && wrong == 0;
        if (rc == 0 && wrong < 0)
            rc = err_set(err, ERR_NUMERIC, "%s: the product has values that are not finite", be->device);
        if (rc == 0)
            gemm_speed_keep(c);
    }
    op_free(x.buf);
    op_free(y.buf);
    return rc;
}

int cl_tune_save(struct backend *be, struct buf *text, struct err *err)
{
    struct clb *c = (struct clb *)be;

    if (c->gemm == NULL)
        return err_set(err, ERR_UNSUPPORTED, "%s: CLBlast is not in use there, nothing was measured", be->device);
    gemm_file_print(c, text);
    return buf_failed(text) ? err_set(err, ERR_NOMEM, "no memory for the text of what was measured") : 0;
}
