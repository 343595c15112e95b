/* Attention of the `ref` backend, as the formula stands:
 *     s_p = cap(scale * q . k_p)      over the positions p the row may see
 *     out = sum_p softmax(s)_p v_p
 * with doubles, one position after the other.  Never tuned. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "backend/cpu/host.h"
#include "backend/cpu/ref.h"
#include "base/mem.h"

static double element(const struct tensor *t, const uint8_t *row, int d)
{
    const struct dtype_info *info = dtype_info(t->dtype);
    float v[32];
    size_t n = info->block_elems;
    info->to_f32(v, row + (size_t)d / n * info->block_size, n);
    return v[(size_t)d % n];
}

/* scores[p - first] for first <= p <= last, then out[head_dim] */
static void attend(float *out, double *scores, const float *q, const struct kv_layer *kv,
                   const struct kv_rows *rows, const struct attention_args *args, int32_t seq, int32_t first,
                   int32_t last, int kv_head)
{
    double max = -INFINITY, sum = 0;

    for (int32_t p = first; p <= last; p++) {
        const uint8_t *k = host_kv_row(kv, &kv->k, rows, seq, p, kv_head);
        double s = 0;
        for (int d = 0; d < kv->head_dim; d++)
            s += (double)q[d] * element(&kv->k, k, d);
        s *= (double)args->scale;
        if (args->softcap > 0)
            s = (double)args->softcap * tanh(s / (double)args->softcap);
        scores[p - first] = s;
        max = s > max ? s : max;
    }
    for (int32_t p = first; p <= last; p++)
        sum += scores[p - first] = exp(scores[p - first] - max);
    for (int d = 0; d < kv->head_dim; d++) {
        double o = 0;
        for (int32_t p = first; p <= last; p++)
            o += scores[p - first] * element(&kv->v, host_kv_row(kv, &kv->v, rows, seq, p, kv_head), d);
        out[d] = (float)(o / sum);
    }
}

void ref_attention(struct backend *be, const struct tensor *out, const struct tensor *q,
                   const struct kv_layer *kv, const struct kv_rows *rows, const struct attention_args *args)
{
    int group = args->n_heads / kv->n_kv_heads;
    double *scores = mem_array((size_t)rows->max_pos + 1, sizeof *scores);

    if (scores == NULL) {
        backend_fail(be, ERR_NOMEM, "no memory for %d scores", rows->max_pos + 1);
        return;
    }
    for (int64_t r = 0; r < q->rows; r++) {
        int32_t last = host_i32(&rows->pos)[r];
        int32_t first = args->window > 0 && last >= args->window ? last - args->window + 1 : 0;
        for (int h = 0; h < args->n_heads; h++) {
            int64_t at = (r * args->n_heads + h) * kv->head_dim;
            attend(host_f32(out) + at, scores, host_f32(q) + at, kv, rows, args, host_i32(&rows->seq)[r],
                   first, last, h / group);
        }
    }
    free(scores);
}
