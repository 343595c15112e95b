/* Kernels and events of a profile, over all instances of a loaded model.
 * Owns nothing: the instances keep them, and what closed ones had is gone.
 * Knows neither tables nor traces. */
#include "run/load.h"

#include <forge.h>

int load_kernel(const struct loaded *l, size_t i, struct forge_kernel *out)
{
    for (int b = 0; b < l->n_backends; b++) {
        const struct prof *p = op_prof(l->backends[b]);
        for (size_t k = 0; k < prof_n_rows(p); k++) {
            const struct prof_row *r = prof_row_at(p, k);
            if (!r->is_kernel || r->calls == 0 || i-- > 0)
                continue;
            *out = (struct forge_kernel){r->name,  op_name(r->op), op_device(l->backends[b]), r->calls, r->untimed,
                                         r->bytes, r->flops,       r->seconds};
            return 1;
        }
    }
    return 0;
}

int load_event(const struct loaded *l, size_t i, struct forge_event *out)
{
    for (int b = 0; b < l->n_backends; b++) {
        const struct prof *p = op_prof(l->backends[b]);
        if (i >= prof_n_events(p)) {
            i -= prof_n_events(p);
            continue;
        }
        struct prof_event v = prof_event_at(p, i);
        *out = (struct forge_event){v.row->name, op_name(v.row->op), op_device(l->backends[b]), v.start, v.seconds,
                                    v.bytes,     v.flops};
        return 1;
    }
    return 0;
}
