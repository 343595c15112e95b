/* Calls of tools inside an answer, between
 * answer.c, which finds where they may be, and
 * answer_calls.c, which reads them. */
#ifndef FORGE_TEXT_ANSWER_CALLS_H
#define FORGE_TEXT_ANSWER_CALLS_H

#include "text/answer.h"

/* One call, several behind each other, or a list of them, all of the text; false = that is not what it is, and out is as
 * it was. */
bool answer_calls(const char *text, size_t len, struct answer_parts *out);

#endif
