/* CLBlast behind the contract of blast.h: the only file that knows it.
 *
 * CLBlast keeps compiled programs for the whole process, by context; so its
 * calls are made one at a time, and closing an instance clears what it keeps
 * (another instance that is alive compiles again at its next call).  There is
 * no way to hand it a compiled program: our cache on disk cannot hold them. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "backend/opencl/blast.h"

#ifdef HAVE_CLBLAST
#include <clblast_c.h>

#include "base/thread.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
/* Temporary memory: what a product of 512 rows by a tile of weights takes is below this. */
#define TEMP_MOST ((size_t)64 << 20)
enum { MAX_PARAMS = 32, BLOCK = 64 /* rows and columns of the smallest block */ };

bool blast_there(void)
{
    return true;
}

const char *blast_version(void)
{
    return TEXT(CLBLAST_VERSION_MAJOR) "." TEXT(CLBLAST_VERSION_MINOR) "." TEXT(CLBLAST_VERSION_PATCH);
}

void blast_open(struct blast *b, struct clb *c)
{
    *b = (struct blast){.c = c, .temp_most = cl_alloc_room(c, TEMP_MOST)};
}

static void drop_temp(struct blast *b)
{
    if (b->temp != NULL) {
        clReleaseMemObject(b->temp); /* the runtime keeps it for what is enqueued */
        b->c->used -= b->temp_size;
    }
    b->temp = NULL;
    b->temp_size = 0;
}

void blast_close(struct blast *b)
{
    if (b->c == NULL)
        return;
    drop_temp(b);
    if (b->n_calls > 0) {
        process_lock();
        CLBlastClearCache();
        process_unlock();
    }
    *b = (struct blast){0};
}

static bool grow_temp(struct blast *b, size_t size)
{
    if (size <= b->temp_size)
        return true;
    drop_temp(b);
    b->temp = cl_mem_new(b->c, size, "CLBlast's temporary memory", NULL);
    b->temp_size = b->temp != NULL ? size : 0;
    return b->temp != NULL;
}

/* Does a matrix of rows x cols values end below 2^31 values from the start of its memory? */
static bool fits_int(const struct blast_matrix *t, int64_t rows, int64_t cols)
{
    int64_t most = INT32_MAX - (int64_t)(t->off / sizeof(float));
    return t->off / sizeof(float) <= INT32_MAX && cols <= t->ld && t->ld <= most && rows <= most / t->ld;
}

static bool is_sound(const struct blast_product *p)
{
    return p->k > 0 && p->a.off % sizeof(float) == 0 && p->b.off % sizeof(float) == 0 &&
           p->c.off % sizeof(float) == 0 && !p->c.transposed &&
           fits_int(&p->a, p->a.transposed ? p->k : p->m, p->a.transposed ? p->m : p->k) &&
           fits_int(&p->b, p->b.transposed ? p->n : p->k, p->b.transposed ? p->k : p->n) &&
           fits_int(&p->c, p->m, p->n);
}

static CLBlastTranspose side(const struct blast_matrix *t)
{
    return t->transposed ? CLBlastTransposeYes : CLBlastTransposeNo;
}

static size_t first(const struct blast_matrix *t)
{
    return (size_t)(t->off / sizeof(float));
}

static int temp_need(struct blast *b, const struct blast_product *p, size_t *size)
{
    *size = 0;
    return CLBlastSGemmTempBufferSize(CLBlastLayoutRowMajor, side(&p->a), side(&p->b), (size_t)p->m, (size_t)p->n,
                                      (size_t)p->k, first(&p->a), (size_t)p->a.ld, first(&p->b), (size_t)p->b.ld,
                                      first(&p->c), (size_t)p->c.ld, &b->c->queue, size);
}

static int run(struct blast *b, const struct blast_product *p)
{
    b->n_calls++;
    return CLBlastSgemmWithTempBuffer(CLBlastLayoutRowMajor, side(&p->a), side(&p->b), (size_t)p->m, (size_t)p->n,
                                      (size_t)p->k, p->alpha, p->a.mem, first(&p->a), (size_t)p->a.ld, p->b.mem,
                                      first(&p->b), (size_t)p->b.ld, p->beta, p->c.mem, first(&p->c),
                                      (size_t)p->c.ld, &b->c->queue, NULL, b->temp);
}

/* The part of p from row r0 and column c0 of c on, m x n values. */
static struct blast_product block_of(const struct blast_product *p, int64_t r0, int64_t c0, int64_t m, int64_t n)
{
    struct blast_product q = *p;

    q.m = m;
    q.n = n;
    q.a.off += (cl_ulong)(r0 * (p->a.transposed ? 1 : p->a.ld)) * sizeof(float);
    q.b.off += (cl_ulong)(c0 * (p->b.transposed ? p->b.ld : 1)) * sizeof(float);
    q.c.off += (cl_ulong)(r0 * p->c.ld + c0) * sizeof(float);
    return q;
}

/* Half of n in whole blocks, but for the last. */
static int64_t half(int64_t n)
{
    return (n / 2 + BLOCK - 1) / BLOCK * BLOCK;
}

/* Whole where its temporary memory stays bounded, else as two blocks along the longer side of c. */
static int multiply(struct blast *b, const struct blast_product *p)
{
    struct blast_product part[2];
    size_t need;
    int code = temp_need(b, p, &need);

    if (code != CL_SUCCESS)
        return code;
    if (need <= b->temp_most || (p->m <= BLOCK && p->n <= BLOCK))
        return grow_temp(b, need) ? run(b, p) : CL_MEM_OBJECT_ALLOCATION_FAILURE;
    if (p->n >= p->m) {
        int64_t n = half(p->n);
        part[0] = block_of(p, 0, 0, p->m, n);
        part[1] = block_of(p, 0, n, p->m, p->n - n);
    } else {
        int64_t m = half(p->m);
        part[0] = block_of(p, 0, 0, m, p->n);
        part[1] = block_of(p, m, 0, p->m - m, p->n);
    }
    for (int i = 0; i < 2 && code == CL_SUCCESS; i++)
        code = part[i].m > 0 && part[i].n > 0 ? multiply(b, &part[i]) : CL_SUCCESS;
    return code;
}

int blast_sgemm(struct blast *b, const struct blast_product *p)
{
    int code;

    if (p->m == 0 || p->n == 0)
        return CL_SUCCESS;
    if (!is_sound(p))
        return CL_INVALID_VALUE;
    process_lock();
    code = multiply(b, p);
    process_unlock();
    return code;
}

int blast_override(struct blast *b, const char *kernel, size_t n, const char *const *names, const size_t *values)
{
    const char *list[MAX_PARAMS];
    int code;

    if (n > MAX_PARAMS)
        return CL_INVALID_VALUE;
    for (size_t i = 0; i < n; i++)
        list[i] = names[i];
    process_lock();
    code = CLBlastOverrideParameters(b->c->dev.id, kernel, CLBlastPrecisionSingle, n, list, values);
    process_unlock();
    return code;
}

#else /* built without it */

bool blast_there(void)
{
    return false;
}

const char *blast_version(void)
{
    return "none";
}

void blast_open(struct blast *b, struct clb *c)
{
    *b = (struct blast){.c = c};
}

void blast_close(struct blast *b)
{
    *b = (struct blast){0};
}

int blast_sgemm(struct blast *b, const struct blast_product *p)
{
    (void)b, (void)p;
    return -1024; /* CLBlastNotImplemented */
}

int blast_override(struct blast *b, const char *kernel, size_t n, const char *const *names, const size_t *values)
{
    (void)b, (void)kernel, (void)n, (void)names, (void)values;
    return -1024;
}
#endif
