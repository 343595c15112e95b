/* A JSON schema as a grammar: the text is JSON, and valid by the schema.
 *
 * Never more than the schema allows, and where it leaves a choice of spelling,
 * not all of it:
 *   - properties come in the schema's order, optional ones may be left out; where
 *     `additionalProperties` is not given, there are others only if `properties`
 *     is not given either; other ones come last, without escapes in their names;
 *   - one space, or a new line with up to 32 blanks, after { [ , : and before } ];
 *   - whole numbers have up to 18 digits, others also a fraction of up to 17 and an
 *     exponent of 2; where there are bounds, no exponent;
 *   - values of `enum` and `const` are spelled in one way;
 *   - values of no schema lie up to 32 deep in each other, and so do $refs;
 *   - where no `type` is given, but keywords of one, values are of that type.
 * Known: type (also a list), enum, const, anyOf, $ref (#, #/...), properties,
 * required, additionalProperties, items, minItems, maxItems, minLength,
 * maxLength, pattern, minimum, maximum, exclusiveMinimum, exclusiveMaximum, true
 * and false; $defs and definitions hold what $ref names.  Ignored, since they
 * allow and forbid nothing: title, description, default, examples, format,
 * deprecated, readOnly, writeOnly, $schema, $comment, and $id of the whole.  Any
 * other keyword is refused by name, as is enum, const, anyOf or $ref beside a
 * keyword that would have to hold as well (but `type` beside enum and const), and
 * pattern beside a length.
 * pattern: characters, `.`, classes, \d \w \s and their like (of ASCII: \D \W
 * \S as well), groups, `|`, `* + ? {m,n}`, ^ and $ at the ends. */
#ifndef FORGE_TEXT_JSON_SCHEMA_H
#define FORGE_TEXT_JSON_SCHEMA_H

#include "text/grammar.h"

int grammar_from_schema(struct grammar **out, const char *json, size_t len, struct err *err);

#endif
