/* expression.h over PCRE2. */
#include "text/expression.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef MHA_HAS_PCRE2

bool nn_expression_available(void) { return false; }

nn_expression *nn_expression_compile(const char *pattern, char *error, size_t error_size)
{
    (void)pattern;
    snprintf(error, error_size, "this build has no PCRE2 for its regular expression");
    return NULL;
}

void nn_expression_free(nn_expression *e) { (void)e; }
void nn_matcher_free(nn_matcher *m) { *m = (nn_matcher){0}; }

int nn_expression_find(const nn_expression *e, nn_matcher *m, const char *text, size_t size, size_t from, size_t *start,
                       size_t *end)
{
    (void)e, (void)m, (void)text, (void)size, (void)from;
    *start = *end = 0;
    return -1;
}

#else
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Steps of a match: so many for any text, and so many more per byte. */
enum { LEAST_STEPS = 1000000, STEPS_PER_BYTE = 200 };
enum { STACK_FIRST = 32 << 10, STACK_MOST = 8 << 20 }; /* bytes, of the just-in-time compiled code */

struct nn_expression {
    pcre2_code *code;
};

bool nn_expression_available(void) { return true; }

nn_expression *nn_expression_compile(const char *pattern, char *error, size_t error_size)
{
    nn_buffer own = {0};
    nn_expression *e = NULL;
    pcre2_compile_context *context = NULL;
    const char *problem = nn_expression_translate(&own, pattern);
    if (problem) {
        snprintf(error, error_size, "its regular expression has %s, which is not supported", problem);
        goto out;
    }
    nn_buffer_putc(&own, 0);
    e = calloc(1, sizeof *e);
    context = pcre2_compile_context_create(NULL);
    if (own.failed || !e || !context) {
        snprintf(error, error_size, "not enough memory for a regular expression");
        goto fail;
    }
    int code;
    PCRE2_SIZE at;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    e->code = pcre2_compile((PCRE2_SPTR)own.bytes, own.size - 1,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    if (!e->code) {
        PCRE2_UCHAR reason[128];
        pcre2_get_error_message(code, reason, sizeof reason);
        snprintf(error, error_size, "its regular expression is invalid: %s", (char *)reason);
        goto fail;
    }
    pcre2_jit_compile(e->code, PCRE2_JIT_COMPLETE); /* without it, matching is slower and the same */
    goto out;
fail:
    nn_expression_free(e);
    e = NULL;
out:
    pcre2_compile_context_free(context);
    nn_buffer_free(&own);
    return e;
}

void nn_expression_free(nn_expression *e)
{
    if (!e) return;
    pcre2_code_free(e->code);
    free(e);
}

void nn_matcher_free(nn_matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    *m = (nn_matcher){0};
}

static bool prepare(nn_matcher *m)
{
    if (!m->data) m->data = pcre2_match_data_create(1, NULL);
    if (!m->context) m->context = pcre2_match_context_create(NULL);
    if (!m->stack) { /* none, where PCRE2 does not compile just in time */
        m->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
        if (m->context && m->stack) pcre2_jit_stack_assign(m->context, NULL, m->stack);
    }
    return m->data && m->context;
}

int nn_expression_find(const nn_expression *e, nn_matcher *m, const char *text, size_t size, size_t from, size_t *start,
                       size_t *end)
{
    if (!prepare(m)) return -1;
    uint64_t steps = LEAST_STEPS + (uint64_t)size * STEPS_PER_BYTE;
    pcre2_set_match_limit(m->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    int found = pcre2_match(e->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found =
            pcre2_match(e->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->context);
    if (found < 0) return found == PCRE2_ERROR_NOMATCH ? 0 : -1;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
    *start = at[0];
    *end = at[1];
    return *start <= *end ? 1 : -1;
}

#endif
