/* The table of filters, between
 * template_filters.c and
 * template_filters_list.c alone. */
#ifndef FORGE_TEXT_TEMPLATE_FILTERS_H
#define FORGE_TEXT_TEMPLATE_FILTERS_H

#include "text/template_parts.h"

#define FILTER_ARGS 4

struct filter_call {
    const char *name;
    const struct val *v;
    struct val arg[FILTER_ARGS]; /* none where not given */
    bool given[FILTER_ARGS];
    struct args *all;
};

struct filter_row {
    const char *name;
    bool (*call)(struct render *r, const struct filter_call *f, struct val *out);
    int n_required; /* -1 = reads `all` itself */
    const char *names[FILTER_ARGS];
};

extern const struct filter_row filters_list[];
extern const size_t filters_list_n;

#endif
