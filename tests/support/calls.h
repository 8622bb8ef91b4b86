/* A small good call to attention that a test spoils in one place, and the two ways in which it may end: refused with a
 * status, a message that names the argument and not one byte written, or accepted. For the tests of bad input. */
#ifndef CALLS_H
#define CALLS_H

#include "support/contexts.h"
#include "support/harness.h"

enum { B = 2, H = 4, G = 2, TQ = 3, TK = 5, D = 4, E = 4, FLOATS = 1 << 14 };

/* Everything that a call may touch lies in one place, so that one comparison shows whether it did. */
static struct {
    float floats[FLOATS];
    int64_t lengths[B], query_lengths[B], offsets[B], query_starts[B + 1], key_starts[B + 1];
    unsigned char mask[B * H * TQ * TK];
} arena;

typedef struct call {
    mha_tensor out, q, k, v;
    mha_attention_extras extras;
    mha_attention_options options;
    bool no_extras, no_options;
} call;

/* q, k, v and out in separate parts of the arena, nothing else asked for. */
static inline call good(void)
{
    call c = {.extras = MHA_ATTENTION_NO_EXTRAS, .options = MHA_ATTENTION_DEFAULTS};
    for (int n = 0; n < FLOATS; n++) arena.floats[n] = (float)(n % 251) / 64 - 2;
    memset(arena.mask, 1, sizeof arena.mask);
    arena.query_starts[0] = arena.key_starts[0] = 0;
    for (int b = 0; b < B; b++) {
        arena.lengths[b] = TK - b;
        arena.query_lengths[b] = TQ - b;
        arena.offsets[b] = b;
        arena.query_starts[b + 1] = (b + 1) * TQ;
        arena.key_starts[b + 1] = (b + 1) * TK;
    }
    c.q = mha_tensor_4d(arena.floats, MHA_FLOAT32, B, H, TQ, D);
    c.k = mha_tensor_4d(arena.floats + 1024, MHA_FLOAT32, B, G, TK, D);
    c.v = mha_tensor_4d(arena.floats + 2048, MHA_FLOAT32, B, G, TK, E);
    c.out = mha_tensor_4d(arena.floats + 3072, MHA_FLOAT32, B, H, TQ, E);
    return c;
}

static inline mha_tensor good_lse(void) { return mha_tensor_3d(arena.floats + 4096, MHA_FLOAT32, B, H, TQ); }
static inline mha_tensor good_softmax(void) { return mha_tensor_4d(arena.floats + 4352, MHA_FLOAT32, B, H, TQ, 2); }
static inline mha_tensor good_weights(void) { return mha_tensor_4d(arena.floats + 5120, MHA_FLOAT32, B, H, TQ, TK); }
static inline mha_tensor good_scores(void) { return mha_tensor_4d(arena.floats + 6144, MHA_FLOAT32, B, H, TQ, TK); }
static inline mha_tensor good_bias(void) { return mha_tensor_4d(arena.floats + 7168, MHA_FLOAT32, B, H, TQ, TK); }
static inline mha_tensor good_mask(void) { return mha_tensor_4d(arena.mask, MHA_BOOL, B, H, TQ, TK); }
static inline mha_tensor good_slopes(void) { return mha_tensor_2d(arena.floats + 8192, MHA_FLOAT32, B, H); }
static inline mha_tensor good_sinks(void) { return mha_tensor_1d(arena.floats + 8448, MHA_FLOAT32, H); }

/* The same tensor, dense, with one axis longer or shorter. */
static inline mha_tensor resized(mha_tensor t, int axis, int64_t by)
{
    int64_t stride = 1;
    t.size[axis] += by;
    for (int a = t.rank - 1; a >= 0; a--) {
        t.stride[a] = stride;
        stride *= t.size[a];
    }
    return t;
}

/* Whether `text` has one of the words of `names`, which are separated by '|', as a word of its own. */
static inline bool names_one(const char *text, const char *names)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    while (*names) {
        size_t length = strcspn(names, "|");
        for (const char *word = text; *word;) {
            size_t own = strspn(word, letters);
            if (own == length && !strncmp(word, names, length)) return true;
            word += own ? own : 1;
        }
        names += length + (names[length] == '|');
    }
    return false;
}

static inline mha_status forward(mha_context *ctx, const call *c)
{
    return mha_attention_forward(ctx, c->out, c->no_extras ? NULL : &c->extras, c->q, c->k, c->v,
                                 c->no_options ? NULL : &c->options);
}

static inline mha_status explain(mha_context *ctx, const call *c)
{
    mha_attention_plan plan;
    return mha_attention_explain(ctx, &plan, c->out, c->no_extras ? NULL : &c->extras, c->q, c->k, c->v,
                                 c->no_options ? NULL : &c->options);
}

/* What mha_attention_explain answers for the same arguments. */
typedef enum verdict { LIKEWISE, CANNOT_KNOW } verdict;

/* Expects the call to be refused, then makes it good again. */
static inline void refuse_(const char *file, int line, call *c, mha_status want, const char *names, verdict said)
{
    static unsigned char before[sizeof arena];
    memcpy(before, &arena, sizeof arena);
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_status got = forward(ctx, c);
    const char *text = mha_context_error(ctx);
    harness_expect(got == want, file, line, "%s, not %s: %s", mha_status_name(got), mha_status_name(want), text);
    harness_expect(text[0] && !strchr(text, '\n'), file, line, "the message is no line: '%s'", text);
    harness_expect(names_one(text, names), file, line, "'%s' does not name %s", text, names);
    harness_expect(!memcmp(before, &arena, sizeof arena), file, line, "refused, but memory has changed: %s", text);
    mha_status told = explain(ctx, c);
    harness_expect(told == (said == LIKEWISE ? want : MHA_OK), file, line, "explain: %s: %s", mha_status_name(told),
                   mha_context_error(ctx));
    mha_context_free(ctx);
    *c = good();
}

static inline void accept_(const char *file, int line, call *c)
{
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_status got = explain(ctx, c);
    harness_expect(!got, file, line, "explain: %s: %s", mha_status_name(got), mha_context_error(ctx));
    got = forward(ctx, c);
    harness_expect(!got, file, line, "%s: %s", mha_status_name(got), mha_context_error(ctx));
    harness_expect(!mha_context_error(ctx)[0], file, line, "a message after success: %s", mha_context_error(ctx));
    mha_context_free(ctx);
    *c = good();
}

#define refuse(c, status, names, said) refuse_(__FILE__, __LINE__, c, status, names, said)
#define accept(c)                      accept_(__FILE__, __LINE__, c)

#endif
