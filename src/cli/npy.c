/* .npy reading and writing.  The header is a Python dict as text; only its
 * three keys are understood, and anything else is refused.
 * Files are outside bytes: every size is checked against the file. */
#include "cli/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_LEN 6
#define PREFIX_LEN 10 /* magic, version, u16 header length */
#define HEADER_MAX 4096

static int write_failed(const struct npy_writer *w, struct err *err)
{
    return err_set(err, ERR_IO, "%s: cannot write: %s", w->out.path, strerror(errno));
}

int npy_create(struct npy_writer *w, const char *path, const int64_t *shape, int n_dims, struct err *err)
{
    char dict[128];
    unsigned char head[256];
    int rc = out_file_open(&w->out, path, err);
    if (rc < 0)
        return rc;
    int len =
        n_dims == 1
            ? snprintf(dict, sizeof dict,
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ",), }", shape[0])
            : snprintf(dict, sizeof dict,
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }",
                       shape[0], shape[1]);
    /* padded with spaces and a newline so that the data begin at a multiple of 64 */
    size_t total = (PREFIX_LEN + (size_t)len + 1 + 63) / 64 * 64, header = total - PREFIX_LEN;
    memset(head, ' ', total);
    memcpy(head, MAGIC, MAGIC_LEN);
    head[6] = 1;
    head[7] = 0;
    head[8] = (unsigned char)(header & 255);
    head[9] = (unsigned char)(header >> 8);
    memcpy(head + PREFIX_LEN, dict, (size_t)len);
    head[total - 1] = '\n';
    return fwrite(head, 1, total, w->out.f) == total ? 0 : write_failed(w, err);
}

int npy_put(struct npy_writer *w, const float *x, size_t n, struct err *err)
{
    return fwrite(x, sizeof *x, n, w->out.f) == n ? 0 : write_failed(w, err);
}

int npy_finish(struct npy_writer *w, bool keep, struct err *err)
{
    return out_file_close(&w->out, keep, err);
}

int npy_write(const char *path, const float *x, const int64_t *shape, int n_dims, struct err *err)
{
    struct npy_writer w = {0};
    size_t n = (size_t)shape[0] * (n_dims > 1 ? (size_t)shape[1] : 1);
    int rc = npy_create(&w, path, shape, n_dims, err);
    if (rc == 0)
        rc = npy_put(&w, x, n, err);
    int closed = npy_finish(&w, rc == 0, err);
    return rc < 0 ? rc : closed;
}

/* ---- reading ---- */

static const char *after_key(const char *dict, const char *key)
{
    const char *p = strstr(dict, key);
    if (!p)
        return NULL;
    p += strlen(key);
    p += strspn(p, " :");
    return p;
}

/* A dimension at *p, and steps behind the comma. */
static bool dimension(const char **p, int64_t *out)
{
    int64_t v = 0;
    int n = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++, n++) {
        if (n >= 15)
            return false;
        v = v * 10 + (**p - '0');
    }
    *p += strspn(*p, ", ");
    *out = v;
    return n > 0;
}

static int parse_dict(struct npy *a, const char *dict, struct err *err)
{
    const char *path = a->map.path, *descr = after_key(dict, "'descr'"),
               *order = after_key(dict, "'fortran_order'"), *shape = after_key(dict, "'shape'");
    int64_t dims[2];
    int n = 0;
    if (!descr || !order || !shape || *shape != '(')
        return err_set(err, ERR_FORMAT, "%s: the .npy header lacks descr, fortran_order or shape", path);
    a->f64 = strncmp(descr, "'<f8'", 5) == 0;
    if (!a->f64 && strncmp(descr, "'<f4'", 5) != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: the .npy type is %.*s, and '<f4' (float32) or '<f8' (float64) is needed", path,
                       (int)(descr[0] == '\'' ? strcspn(descr + 1, "'") + 2 : strcspn(descr, ",}")), descr);
    if (strncmp(order, "False", 5) != 0)
        return err_set(err, ERR_UNSUPPORTED, "%s: the .npy array is in Fortran order", path);
    for (shape++; *shape != ')'; n++)
        if (n >= 2 || !dimension(&shape, &dims[n]))
            return err_set(err, ERR_UNSUPPORTED, "%s: the .npy shape is none of one or two dimensions", path);
    if (n == 0)
        return err_set(err, ERR_UNSUPPORTED, "%s: the .npy shape is none of one or two dimensions", path);
    a->rows = n == 2 ? dims[0] : 1;
    a->cols = dims[n - 1];
    return 0;
}

int npy_open(struct npy *a, const char *path, struct err *err)
{
    char dict[HEADER_MAX + 1];
    size_t len, n, bytes;
    *a = (struct npy){0};
    int rc = map_open(&a->map, path, err);
    if (rc < 0)
        return rc;
    const uint8_t *d = a->map.data;
    bool v1 = a->map.size > 12 && d[6] == 1;
    if (a->map.size < 12 || memcmp(d, MAGIC, MAGIC_LEN) != 0 || d[6] < 1 || d[6] > 3) {
        rc = err_set(err, ERR_FORMAT, "%s: this is no .npy file of version 1 to 3", path);
        goto fail;
    }
    len = (size_t)d[8] | (size_t)d[9] << 8;
    if (!v1)
        len |= (size_t)d[10] << 16 | (size_t)d[11] << 24;
    a->data_off = (v1 ? 10 : 12) + len;
    if (len > HEADER_MAX || a->data_off > a->map.size) {
        rc = err_set(err, ERR_FORMAT, "%s: the .npy header of %zu bytes does not fit", path, len);
        goto fail;
    }
    memcpy(dict, d + a->data_off - len, len);
    dict[len] = '\0';
    rc = parse_dict(a, dict, err);
    if (rc < 0)
        goto fail;
    if (!mem_mul((size_t)a->rows, (size_t)a->cols, &n) || !mem_mul(n, a->f64 ? 8 : 4, &bytes) ||
        bytes > a->map.size - a->data_off) {
        rc = err_set(err, ERR_FORMAT,
                     "%s: truncated: %" PRId64 " x %" PRId64 " values need more than its %zu bytes", path,
                     a->rows, a->cols, a->map.size);
        goto fail;
    }
    return 0;
fail:
    npy_close(a);
    return rc;
}

void npy_close(struct npy *a)
{
    map_close(&a->map);
}

void npy_row(const struct npy *a, int64_t row, float *out)
{
    size_t size = a->f64 ? sizeof(double) : sizeof(float), n = (size_t)a->cols;
    const uint8_t *p = a->map.data + a->data_off + (size_t)row * n * size;
    if (!a->f64) {
        memcpy(out, p, n * size);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double v;
        memcpy(&v, p + i * size, sizeof v);
        out[i] = (float)v;
    }
}
