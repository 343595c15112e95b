/* One text for what is known about a device's matrix products: CLBlast's
 * parameters and the speeds that were measured.  The cache keeps such a text
 * for each device; people carry one along.
 *
 *     # a comment
 *     device NAME                       what follows holds where the device's name has this part
 *     driver VERSION                    and its driver is this one; a new "device" line ends both
 *     kernel Xgemm MWG=64 NWG=64 ...    parameters of a CLBlast kernel, for f32
 *     speed TYPE N K ROWS OWN CLBLAST   nanoseconds of one product of ROWS rows by [N, K]
 *
 * Parameters are checked before CLBlast sees them: it divides by them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/gemm.h"
#include "base/mem.h"

enum { WORDS = 40, MAX_VALUE = 256, MAX_LIMIT = 1 << 20, MAX_PER_ITEM = 256, NAME_SIZE = 32 };

struct line {
    char *word[WORDS]; /* into the copy of the text */
    int n;
};

/* ---- words and numbers ---- */
/* Cuts the line at `at` into words; returns where the next begins. */
static char *cut(char *at, struct line *l, bool *too_long)
{
    size_t len = strcspn(at, "\n");
    char *next = at[len] == '\n' ? at + len + 1 : at + len;

    at[len] = '\0';
    at[strcspn(at, "#")] = '\0';
    l->n = 0;
    *too_long = false;
    for (at += strspn(at, " \t\r"); *at != '\0'; at += strspn(at, " \t\r")) {
        if (l->n == WORDS) {
            *too_long = true;
            break;
        }
        l->word[l->n++] = at;
        at += strcspn(at, " \t\r");
        if (*at != '\0')
            *at++ = '\0';
    }
    return next;
}

/* Decimal digits alone, up to `most`. */
static bool number(const char *text, int64_t most, int64_t *out)
{
    *out = 0;
    if (*text == '\0')
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (*out > (most - (*text - '0')) / 10)
            return false;
        *out = 10 * *out + (*text - '0');
    }
    return *text == '\0' && *out <= most;
}

/* ---- parameters ---- */
struct params {
    const char *names[WORDS];
    size_t values[WORDS];
    size_t n;
};

static const char *const kernels[] = {"Xgemm", "XgemmDirect", "Copy", "Pad", "Transpose", "Padtranspose",
                                      "GemmRoutine"};
static const char *const may_be_zero[] = {"GEMMK",   "SA",          "SB",         "STRM",  "STRN",
                                          "TRA_PAD", "TRA_SHUFFLE", "PADTRA_PAD", "PADA",  "PADB"};

/* what % (a * b / c) = 0; a missing one (NULL) counts as 1.  Kernels read past their tiles where one does not hold. */
static const struct rule {
    const char *kernel, *what, *a, *b, *c;
} rules[] = {
    {"Xgemm", "KWG", "KWI", NULL, NULL},          {"Xgemm", "MWG", "MDIMC", "VWM", NULL},
    {"Xgemm", "NWG", "NDIMC", "VWN", NULL},       {"Xgemm", "MWG", "MDIMA", "VWM", NULL},
    {"Xgemm", "NWG", "NDIMB", "VWN", NULL},       {"Xgemm", "KWG", "MDIMC", "NDIMC", "MDIMA"},
    {"Xgemm", "KWG", "MDIMC", "NDIMC", "NDIMB"},  {"XgemmDirect", "WGD", "KWID", NULL, NULL},
    {"XgemmDirect", "WGD", "MDIMCD", "VWMD", NULL}, {"XgemmDirect", "WGD", "NDIMCD", "VWND", NULL},
    {"XgemmDirect", "WGD", "MDIMAD", "VWMD", NULL}, {"XgemmDirect", "WGD", "NDIMBD", "VWND", NULL},
    {"XgemmDirect", "WGD", "MDIMCD", "NDIMCD", "MDIMAD"}, {"XgemmDirect", "WGD", "MDIMCD", "NDIMCD", "NDIMBD"},
};

static bool one_of(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}
#define ONE_OF(list, name) one_of(list, sizeof(list) / sizeof *(list), name)

/* NULL where it is not given: CLBlast itself refuses what lacks one. */
static const size_t *find_value(const struct params *p, const char *name)
{
    for (size_t i = 0; name != NULL && i < p->n; i++)
        if (strcmp(p->names[i], name) == 0)
            return &p->values[i];
    return NULL;
}

static size_t value_of(const struct params *p, const char *name)
{
    const size_t *v = find_value(p, name);
    return v != NULL ? *v : 1;
}

/* Results of one work-item: more than registers or a stack hold, where a tile is cut too coarsely. */
static bool too_coarse(const struct params *p, const char *m, const char *n, const char *dm, const char *dn)
{
    return value_of(p, m) * value_of(p, n) > MAX_PER_ITEM * value_of(p, dm) * value_of(p, dn);
}

static int check_rules(const char *kernel, const struct params *p, struct err *err)
{
    bool direct = strcmp(kernel, "XgemmDirect") == 0;

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct rule *r = &rules[i];
        size_t ab = value_of(p, r->a) * value_of(p, r->b), c = value_of(p, r->c);
        if (strcmp(r->kernel, kernel) != 0 || find_value(p, r->what) == NULL)
            continue;
        if (ab % c != 0 || value_of(p, r->what) % (ab / c) != 0)
            return err_set(err, ERR_FORMAT, "%s is %zu, no multiple of %s%s%s%s%s", r->what, value_of(p, r->what), r->a,
                           r->b != NULL ? " * " : "", r->b != NULL ? r->b : "", r->c != NULL ? " / " : "",
                           r->c != NULL ? r->c : "");
    }
    if (strcmp(kernel, "Xgemm") == 0 && find_value(p, "GEMMK") != NULL && value_of(p, "GEMMK") == 1 &&
        value_of(p, "MWG") != value_of(p, "NWG"))
        return err_set(err, ERR_FORMAT, "GEMMK=1 with MWG other than NWG gives wrong results before CLBlast 1.6.3");
    if (direct ? too_coarse(p, "WGD", "WGD", "MDIMCD", "NDIMCD") : too_coarse(p, "MWG", "NWG", "MDIMC", "NDIMC"))
        return err_set(err, ERR_FORMAT, "more than %d results for each work-item", MAX_PER_ITEM);
    return 0;
}

/* "kernel NAME P=V ..."; changes the words. */
static int take_kernel(struct clb *c, struct line *l, struct err *err)
{
    struct cl_gemm *g = c->gemm;
    struct params p = {.n = 0};
    int rc;

    if (l->n < 3 || !ONE_OF(kernels, l->word[1]))
        return err_set(err, ERR_FORMAT, l->n < 3 ? "a kernel and its parameters are missing"
                                                 : "\"%.40s\" is no kernel of matrix products", l->word[l->n < 3 ? 0 : 1]);
    for (int i = 2; i < l->n; i++) {
        char *name = l->word[i], *is = strchr(name, '=');
        int64_t v, most = strcmp(l->word[1], "GemmRoutine") == 0 ? MAX_LIMIT : MAX_VALUE;
        if (is == NULL || is == name || is - name >= NAME_SIZE)
            return err_set(err, ERR_FORMAT, "\"%.40s\" is not NAME=VALUE", name);
        *is = '\0';
        if (!number(is + 1, most, &v) || (v == 0 && !ONE_OF(may_be_zero, name)))
            return err_set(err, ERR_FORMAT, "%s is \"%.20s\", no number from %d to %d", name, is + 1,
                           ONE_OF(may_be_zero, name) ? 0 : 1, (int)most);
        p.names[p.n] = name;
        p.values[p.n++] = (size_t)v;
    }
    rc = check_rules(l->word[1], &p, err);
    if (rc != 0)
        return rc;
    int code = blast_override(&g->blast, l->word[1], p.n, p.names, p.values);
    if (code != CL_SUCCESS)
        return err_set(err, ERR_FORMAT, "CLBlast %s refuses this: %s (%d)", blast_version(), cl_error_name(code), code);
    buf_printf(&g->kernels, "kernel %s", l->word[1]);
    for (size_t i = 0; i < p.n; i++)
        buf_printf(&g->kernels, " %s=%zu", p.names[i], p.values[i]);
    buf_putc(&g->kernels, '\n');
    return 0;
}

/* ---- speeds ---- */
static bool type_named(const char *name, enum dtype *out)
{
    for (int i = 0; i < CL_N_WEIGHTS; i++)
        if (strcmp(dtype_info((enum dtype)i)->name, name) == 0) {
            *out = (enum dtype)i;
            return true;
        }
    return false;
}

static int take_speed(struct clb *c, const struct line *l, struct err *err)
{
    int64_t v[5];
    enum dtype dtype;

    if (l->n != 7 || !type_named(l->word[1], &dtype))
        return err_set(err, ERR_FORMAT, "a speed is: speed TYPE N K ROWS OWN CLBLAST");
    for (int i = 0; i < 5; i++)
        if (!number(l->word[2 + i], i < 3 ? INT32_MAX : INT64_MAX / 16, &v[i]) || v[i] == 0)
            return err_set(err, ERR_FORMAT, "\"%.40s\" is no number above 0", l->word[2 + i]);
    struct gemm_class *k = gemm_class_of(c->gemm, dtype, v[0], v[1], v[2]);
    if (k == NULL)
        return err_set(err, ERR_NOMEM, "no memory for the speed of a product");
    k->measured = true;
    k->own_s = 1e-9 * (double)v[3];
    k->blast_s = 1e-9 * (double)v[4];
    return 0;
}

/* ---- lines ---- */
/* The words behind the first are the text `is` (device: a part of it). */
static bool about(const struct line *l, const char *is, bool part)
{
    char text[160];
    size_t len = 0;

    for (int i = 1; i < l->n; i++) {
        size_t n = strlen(l->word[i]);
        if (len + n + 2 > sizeof text)
            return false;
        if (i > 1)
            text[len++] = ' ';
        memcpy(text + len, l->word[i], n);
        len += n;
    }
    text[len] = '\0';
    return part ? strstr(is, text) != NULL : strcmp(is, text) == 0;
}

static int take(struct clb *c, struct line *l, bool *device, bool *driver, struct err *err)
{
    bool here = *device && *driver;

    if (strcmp(l->word[0], "device") == 0) {
        *device = about(l, c->dev.name, true);
        *driver = true;
        return 0;
    }
    if (strcmp(l->word[0], "driver") == 0) {
        *driver = about(l, c->dev.driver, false);
        return 0;
    }
    if (strcmp(l->word[0], "kernel") == 0)
        return here ? take_kernel(c, l, err) : 0;
    if (strcmp(l->word[0], "speed") == 0)
        return here ? take_speed(c, l, err) : 0;
    return err_set(err, ERR_FORMAT, "\"%.40s\" is none of device, driver, kernel, speed", l->word[0]);
}

int gemm_file_parse(struct clb *c, const char *name, const char *text, size_t len, struct err *err)
{
    char *copy = mem_strndup(text, len), *at = copy;
    bool device = true, driver = true, too_long;
    struct line l;
    int rc = 0;

    if (copy == NULL)
        return err_set(err, ERR_NOMEM, "%s: no memory to read it", name);
    for (int no = 1; rc == 0 && *at != '\0'; no++) {
        struct err why = {0};
        at = cut(at, &l, &too_long);
        rc = too_long ? err_set(&why, ERR_FORMAT, "more than %d words", WORDS)
             : l.n > 0 ? take(c, &l, &device, &driver, &why)
                       : 0;
        if (rc != 0 && err != NULL)
            err_set(err, rc, "%s: line %d: %s", name, no, why.msg);
        rc = err != NULL ? rc : 0;
    }
    free(copy);
    return rc;
}

void gemm_file_print(const struct clb *c, struct buf *out)
{
    const struct cl_gemm *g = c->gemm;

    buf_puts(out, "# matrix products: own kernels and CLBlast, measured by forge\n");
    buf_printf(out, "device %s\ndriver %s\n%s", c->dev.name, c->dev.driver, buf_str(&g->kernels));
    for (size_t i = 0; i < g->n_classes; i++) {
        const struct gemm_class *k = &g->classes[i];
        if (k->measured)
            buf_printf(out, "speed %s %" PRId64 " %" PRId64 " %" PRId64 " %.0f %.0f\n", dtype_info(k->dtype)->name, k->n,
                       k->k, k->rows, 1e9 * k->own_s + 0.5, 1e9 * k->blast_s + 0.5);
    }
}
