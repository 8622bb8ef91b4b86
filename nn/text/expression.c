/* expression.h over PCRE2, whose own limits hold for each place where a match may begin and say nothing about a text.
 *
 * Steps are counted by a function that PCRE2 calls before every item of the pattern: one, and one for every byte between the
 * places of two calls. That costs several times as much as the search itself, so a search begins without it, within the next
 * few bytes and with a low limit for each place, which bounds its time. Where it has to know what follows these bytes, or
 * meets the limit, it begins again and is counted. */
#include "text/expression.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MHA_HAS_PCRE2

void nn_expression_unicode(char out[NN_EXPRESSION_UNICODE]) { *out = 0; }

mha_status nn_expression_compile(nn_expression **e, const char *pattern, char *error, size_t error_size)
{
    (void)pattern;
    *e = NULL;
    snprintf(error, error_size, "this build has no PCRE2 for its regular expression");
    return MHA_BAD_FILE;
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

enum { NEAR = 256, NEAR_LIMIT = 200 }; /* of a search that is not counted: bytes, PCRE2's limit of a place */
enum { PATTERN_MOST = 1 << 16 };       /* bytes */
enum { STACK_FIRST = 32 << 10, STACK_MOST = 8 << 20 }; /* bytes, of the just-in-time compiled code */

struct nn_expression {
    pcre2_code *quick, *counted;
    bool repeats; /* it has back references */
    bool resumes; /* a search may be continued behind bytes where no match begins */
};

void nn_expression_unicode(char out[NN_EXPRESSION_UNICODE])
{
    *out = 0;
    if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) <= NN_EXPRESSION_UNICODE)
        pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, out);
}

static mha_status no_memory(char *error, size_t error_size)
{
    snprintf(error, error_size, "not enough memory for a regular expression");
    return MHA_NO_MEMORY;
}

static mha_status compile(pcre2_code **made, const nn_buffer *own, uint32_t options, uint32_t modes, char *error,
                          size_t error_size)
{
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return no_memory(error, error_size);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    options |= PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    *made = pcre2_compile((PCRE2_SPTR)own->bytes, own->size - 1, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (*made) {
        pcre2_jit_compile(*made, modes); /* without it, matching is slower and the same */
        return MHA_OK;
    }
    PCRE2_UCHAR reason[128];
    pcre2_get_error_message(code, reason, sizeof reason);
    snprintf(error, error_size, "its regular expression is invalid: %s", (char *)reason);
    return code == PCRE2_ERROR_HEAP_FAILED ? MHA_NO_MEMORY : MHA_BAD_FILE;
}

static mha_status compile_both(nn_expression **made, const nn_buffer *own, char *error, size_t error_size)
{
    uint32_t references = 0;
    nn_expression *e = own->failed ? NULL : calloc(1, sizeof *e);
    if (!e) return no_memory(error, error_size);
    mha_status status = compile(&e->quick, own, 0, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD, error, error_size);
    if (!status) status = compile(&e->counted, own, PCRE2_AUTO_CALLOUT, PCRE2_JIT_COMPLETE, error, error_size);
    if (status) {
        nn_expression_free(e);
        return status;
    }
    e->repeats = pcre2_pattern_info(e->quick, PCRE2_INFO_BACKREFMAX, &references) == 0 && references;
    e->resumes = !strstr(own->bytes, "\\G");
    *made = e;
    return MHA_OK;
}

mha_status nn_expression_compile(nn_expression **e, const char *pattern, char *error, size_t error_size)
{
    nn_buffer own = {0};
    *e = NULL;
    if (strlen(pattern) > PATTERN_MOST) {
        snprintf(error, error_size, "its regular expression has more than %d bytes", PATTERN_MOST);
        return MHA_BAD_FILE;
    }
    mha_status status = MHA_BAD_FILE;
    const char *problem = nn_expression_translate(&own, pattern);
    if (problem) snprintf(error, error_size, "its regular expression has %s, which is not supported", problem);
    else {
        nn_buffer_putc(&own, 0);
        status = compile_both(e, &own, error, error_size);
    }
    nn_buffer_free(&own);
    return status;
}

void nn_expression_free(nn_expression *e)
{
    if (!e) return;
    pcre2_code_free(e->quick);
    pcre2_code_free(e->counted);
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

typedef struct counter {
    uint64_t left; /* steps */
    size_t at;     /* of the call before */
    bool repeats;
} counter;

/* A back reference that fails has compared up to all bytes of its group, 16 at a time. */
static int count_step(pcre2_callout_block *block, void *user)
{
    counter *c = user;
    size_t at = block->current_position;
    uint64_t steps = 1 + (at > c->at ? at - c->at : c->at - at);
    for (uint32_t i = 1; c->repeats && i < block->capture_top; i++) {
        const PCRE2_SIZE *ends = block->offset_vector + 2 * (size_t)i;
        if (ends[0] < ends[1] && ends[1] != PCRE2_UNSET) steps += (ends[1] - ends[0]) / 16;
    }
    c->at = at;
    c->left = steps < c->left ? c->left - steps : 0;
    return c->left ? 0 : PCRE2_ERROR_MATCHLIMIT;
}

/* The same result as nn_expression_find, counted. */
static int find_counted(const nn_expression *e, nn_matcher *m, const char *text, size_t size, size_t from)
{
    counter c = {m->steps, from, e->repeats};
    pcre2_set_match_limit(m->context, UINT32_MAX);
    pcre2_set_callout(m->context, count_step, &c);
    int found = pcre2_match(e->counted, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(e->counted, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
                            m->context);
    pcre2_set_callout(m->context, NULL, NULL);
    m->steps = c.left;
    return found;
}

int nn_expression_find(const nn_expression *e, nn_matcher *m, const char *text, size_t size, size_t from, size_t *start,
                       size_t *end)
{
    if (!prepare(m)) return -1;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
    int found = PCRE2_ERROR_PARTIAL;
    size_t first = from;
    for (bool more = e->resumes; more;) {
        size_t near = size - first > NEAR ? first + NEAR : size;
        while (near < size && ((unsigned char)text[near] & 0xc0) == 0x80) near++;
        pcre2_set_match_limit(m->context, NEAR_LIMIT);
        found = pcre2_match(e->quick, (PCRE2_SPTR)text, near, first,
                            PCRE2_NO_UTF_CHECK | (near < size ? PCRE2_PARTIAL_HARD : 0), m->data, m->context);
        more = near < size && (found == PCRE2_ERROR_NOMATCH || (found >= 0 && at[0] >= near));
        if (more) first = near;
    }
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) found = find_counted(e, m, text, size, first);
    if (found < 0) return found == PCRE2_ERROR_NOMATCH ? 0 : -1;
    *start = at[0];
    *end = at[1];
    return from <= *start && *start <= *end ? 1 : -1;
}

#endif
