/* Measuring who multiplies faster: the way from the tool command to a backend
 * that has a choice.
 * Knows neither of the two, nor what is kept where. */
#include <assert.h>

#include "backend/backend.h"

int op_tune_gemm(struct backend *be, const struct tensor *w, int64_t n_rows, int reps, struct op_gemm_speed *out,
                 struct err *err)
{
    assert(w->buf != NULL && w->buf->be == be && n_rows > 0 && reps > 0);
    if (be->ops->tune_gemm == NULL)
        return err_set(err, ERR_UNSUPPORTED, "%s: there is only one way to multiply matrices; choose an OpenCL device",
                       be->device);
    return be->ops->tune_gemm(be, w, n_rows, reps, out, err);
}

int op_tune_save(struct backend *be, struct buf *text, struct err *err)
{
    if (be->ops->tune_save == NULL)
        return err_set(err, ERR_UNSUPPORTED, "%s: nothing was measured there", be->device);
    return be->ops->tune_save(be, text, err);
}
