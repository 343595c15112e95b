/* forge tune gemm: our matrix kernels against CLBlast's on a device, for the
 * matrices of a model; prints a table and lets the device's backend keep what
 * was measured.  How it is measured and where it is kept is the backend's. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/tools.h"
#include "model/model.h"

enum { ROWS_MOST = 65536, SHAPES_MOST = 64 };

struct tune_args {
    struct num_list rows;
    int64_t reps;
    const char *out;
    bool json;
};

/* Where results go beside the table. */
struct tune_out {
    struct buf json, text; /* text is for the file of --out */
    struct out_file file;
};

#define F(field) offsetof(struct tune_args, field)

static const struct opt opts[] = {
    {"rows", 0, OPT_NUMS, F(rows), 0, "N,N,...", "1..65536", "32,64,128,256,512", "rows of a step to measure"},
    {"reps", 'r', OPT_I64, F(reps), 0, "N", "1..32", "5", "runs of each, of which the median counts"},
    {"out", 'o', OPT_STR, F(out), 0, "FILE", NULL, NULL, "also write the results as a file for --clblast-params"},
    {"json", 0, OPT_FLAG, F(json), 0, NULL, NULL, NULL, "as JSON"},
    {0},
};

/* The distinct matrices of a device's layers. */
struct shapes {
    const struct tensor *w[SHAPES_MOST];
    int n;
};

static void add_shape(struct shapes *s, const struct backend *be, const struct tensor *w)
{
    if (w->buf == NULL || w->buf->be != be || s->n == SHAPES_MOST)
        return;
    for (int i = 0; i < s->n; i++)
        if (s->w[i]->dtype == w->dtype && s->w[i]->rows == w->rows && s->w[i]->cols == w->cols)
            return;
    s->w[s->n++] = w;
}

static void find_shapes(struct shapes *s, const struct model *m, const struct backend *be)
{
    s->n = 0;
    for (int64_t i = 0; i < m->config.n_layers; i++) {
        const struct layer *l = &m->layers[i];
        const struct tensor *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            add_shape(s, be, all[j]);
    }
}

static void put_row(struct buf *b, bool json, bool first, const struct tensor *w, int64_t rows,
                    const struct op_gemm_speed *s)
{
    const char *faster = s->other_s > 0 && s->other_s < s->own_s ? "clblast" : "own", *type = dtype_info(w->dtype)->name;
    char shape[64];

    if (json) {
        buf_printf(b, "%s{\"type\":\"%s\",\"n\":%" PRId64 ",\"k\":%" PRId64 ",\"rows\":%" PRId64 ",\"own_ms\":",
                   first ? "" : ",\n", type, w->rows, w->cols, rows);
        buf_put_json_num(b, 1e3 * s->own_s);
        buf_puts(b, ",\"clblast_ms\":");
        buf_put_json_num(b, s->other_s > 0 ? 1e3 * s->other_s : (double)NAN);
        buf_printf(b, ",\"faster\":\"%s\",\"error\":", faster);
        buf_put_json_num(b, s->error);
        buf_puts(b, ",\"why\":");
        buf_put_json(b, s->why, strlen(s->why));
        buf_putc(b, '}');
        return;
    }
    snprintf(shape, sizeof shape, "[%" PRId64 ", %" PRId64 "]", w->rows, w->cols);
    double flops = 2e-9 * (double)rows * (double)w->rows * (double)w->cols;
    if (s->other_s > 0)
        out_printf("%-6s %-18s %6" PRId64 " %10.3f %10.1f %10.3f %10.1f  %-8s %.1g\n", type, shape, rows, 1e3 * s->own_s,
                   flops / s->own_s, 1e3 * s->other_s, flops / s->other_s, faster, s->error);
    else
        out_printf("%-6s %-18s %6" PRId64 " %10.3f %10.1f %10s %10s  %-8s %s\n", type, shape, rows, 1e3 * s->own_s,
                   flops / s->own_s, "-", "-", faster, s->why);
}

/* One device; an exit status. */
static int tune(const struct tune_args *a, const struct model *m, struct backend *be, struct tune_out *o)
{
    struct buf *json = &o->json;
    struct shapes shapes;
    struct op_gemm_speed speed;
    struct err err = {0};
    bool first = true;

    find_shapes(&shapes, m, be);
    if (a->json) {
        buf_puts(json, "{\"device\":");
        buf_put_json(json, op_device(be), strlen(op_device(be)));
        buf_puts(json, ",\"results\":[\n");
    }
    for (int i = 0; i < shapes.n; i++)
        for (size_t r = 0; r < a->rows.n; r++) {
            if (interrupted())
                return EXIT_INTERRUPTED;
            int rc = op_tune_gemm(be, shapes.w[i], a->rows.v[r], (int)a->reps, &speed, &err);
            if (rc != 0)
                return msg_fail(rc, err.msg);
            if (first && !a->json)
                out_printf("== %s\n%-6s %-18s %6s %10s %10s %10s %10s  %-8s %s\n", op_device(be), "type", "weight", "rows",
                           "own ms", "GFLOP/s", "CLBlast ms", "GFLOP/s", "faster", "error");
            put_row(json, a->json, first, shapes.w[i], a->rows.v[r], &speed);
            first = false;
        }
    if (a->json)
        buf_puts(json, "]}");
    if (a->out != NULL && op_tune_save(be, &o->text, &err) != 0)
        return msg_fail(err.code, err.msg);
    return EXIT_OK;
}

static int run(void *args, const struct common *c)
{
    const struct tune_args *a = args;
    struct common asked = *c;
    struct tool t;
    struct tune_out o = {0};
    struct err err = {0};

    if (a->rows.n == 0)
        return msg_usage("tune", "--rows names no number of rows");
    asked.gemm = GEMM_CHOICE_CLBLAST; /* both must be there */
    asked.deterministic = false;
    buf_init(&o.json);
    buf_init(&o.text);
    interrupt_catch();
    int status = tool_open(&t, &asked, 64, 1);
    if (status == 0 && a->out != NULL && t.l.n_backends > 1)
        status = msg_usage("tune", "--out is for one device, and there are %d", t.l.n_backends);
    if (status == 0 && a->out != NULL && out_file_open(&o.file, a->out, &err) != 0)
        status = msg_fail(err.code, err.msg); /* before minutes of measuring */
    buf_puts(&o.json, "{\"devices\":[");
    for (int i = 0; status == 0 && i < t.l.n_backends; i++) {
        buf_puts(&o.json, i > 0 ? ",\n" : "");
        status = tune(a, t.l.model, t.l.backends[i], &o);
    }
    buf_puts(&o.json, "]}\n");
    if (status == 0 && o.file.f != NULL)
        fwrite(o.text.data, 1, o.text.len, o.file.f);
    if (out_file_close(&o.file, status == 0, &err) != 0)
        status = msg_fail(err.code, err.msg);
    status = tool_close(&t, status);
    if (status == 0 && a->json && !out_buf(&o.json))
        status = EXIT_FAILED;
    else
        buf_fini(&o.json);
    buf_fini(&o.text);
    return status;
}

const struct cmd cmd_tune = {
    .name = "tune",
    .subject = "gemm",
    .summary = "Measure own matrix kernels against CLBlast's",
    .usage = "gemm [--rows N,...] [-r N] [--out FILE] [--json]",
    .notes = "Runs the matrices of the model's layers on an OpenCL device, by own kernels and by CLBlast, compares the "
             "results and prints the median times. The cache folder keeps them by device and driver; --gemm auto "
             "follows them on GPUs. On CPU-type devices auto stays with own kernels whatever was measured.",
    .opts = opts,
    .args_size = sizeof(struct tune_args),
    .shared = {common_model_opts, common_device_opts},
    .run = run,
};
