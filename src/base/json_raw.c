/* Where a value begins and ends inside JSON text.
 * Counts brackets and passes over strings;
 * whether the text is JSON at all is json.c's matter. */
#include "base/json_raw.h"

#include <string.h>

/* In every function, an offset is at most r.len. */
static size_t past_string(struct raw r, size_t i)
{
    for (i++; i < r.len && r.s[i] != '"'; i++)
        i += r.s[i] == '\\';
    return i < r.len ? i + 1 : r.len;
}

static size_t past_all_of(struct raw r, size_t i, const char *set)
{
    while (i < r.len && r.s[i] && strchr(set, r.s[i]))
        i++;
    return i;
}

size_t raw_value_end(struct raw r, size_t i)
{
    size_t depth = 0;
    while (i < r.len) {
        char c = r.s[i];
        if (depth == 0 && c && strchr(",]} \t\r\n", c))
            break;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        i = c == '"' ? past_string(r, i) : i + 1;
        if (depth == 0 && (c == '"' || c == '}' || c == ']'))
            break;
    }
    return i;
}

/* The value at i, where one is. */
static bool take(struct raw r, size_t i, size_t *at, struct raw *out)
{
    *at = raw_value_end(r, i);
    *out = (struct raw){r.s + i, *at - i};
    return out->len > 0;
}

bool raw_next_element(struct raw list, size_t *at, struct raw *out)
{
    return take(list, past_all_of(list, *at, *at ? ", \t\r\n" : "\xEF\xBB\xBF[ \t\r\n"), at, out);
}

bool raw_next_member(struct raw obj, size_t *at, struct raw *out)
{
    size_t i = past_all_of(obj, *at, "\xEF\xBB\xBF{, \t\r\n");
    if (i >= obj.len || obj.s[i] != '"')
        return false;
    return take(obj, past_all_of(obj, past_string(obj, i), ": \t\r\n"), at, out);
}

bool raw_member(struct raw obj, const cJSON *o, const char *name, struct raw *out)
{
    struct raw v;
    size_t at = 0;
    bool found = false;
    for (const cJSON *c = o->child; c && raw_next_member(obj, &at, &v); c = c->next)
        if (strcmp(c->string, name) == 0) {
            *out = v;
            found = true;
        }
    return found;
}

bool raw_is_null(struct raw v)
{
    return v.len == 4 && memcmp(v.s, "null", 4) == 0;
}
