/* Calls that are repeated thousands of times have the same bits each time: what one thread of the device may overwrite before
 * another one has read it goes wrong once in a thousand calls, or once in a hundred thousand. */
#include "cuda/compare.h"

#include <string.h>

/* What the kernels of attention differ in, beside types and widths. */
typedef struct way {
    const char *name;
    bool causal, mask, lengths, long_rows;
    int64_t window;
    float dropout;
    int bias; /* 0: none; 2 or 4: bytes of its numbers */
} way;

static const way ways[] = {
    {.name = "plain"},
    {.name = "causal", .causal = true},
    {.name = "window", .causal = true, .window = 100},
    {.name = "mask", .mask = true},
    {.name = "dropout", .dropout = 0.2f},
    {.name = "bias of 16 bits", .bias = 2},
    {.name = "bias", .bias = 4},
    {.name = "lengths", .lengths = true},
};

/* Random bytes on the device; as numbers of 16 or 32 bits they are finite and not large. */
static void *random_map(size_t bytes, size_t each, rng *r)
{
    unsigned char *host = array((int64_t)bytes, 1);
    for (size_t n = 0; n < bytes; n++) host[n] = (unsigned char)rng_between(r, 0, each == 1 ? 1 : 255);
    for (size_t n = each - 1; each > 1 && n < bytes; n += each)
        host[n] = (unsigned char)(rng_chance(r, 0.5) ? 0x38 : 0xb8);
    void *device = gpu_make(bytes);
    gpu_write(device, host, bytes);
    free(host);
    return device;
}

/* The options of a way; what they point to is on the device, in `maps`. */
static void apply(call *c, const way *w, void *(*maps)[3], rng *r)
{
    shape s = c->shape;
    int64_t lengths[64];
    if (w->window) c->options.window_left = w->window;
    if (w->dropout > 0) c->options.dropout = w->dropout, c->options.dropout_seed = seed();
    if (w->mask) {
        (*maps)[0] = random_map((size_t)(s.H * s.Tq * s.Tk), 1, r);
        c->options.mask = mha_tensor_4d((*maps)[0], MHA_BOOL, 1, s.H, s.Tq, s.Tk);
    }
    if (w->bias) {
        (*maps)[1] = random_map((size_t)(s.H * s.Tq * s.Tk * w->bias), (size_t)w->bias, r);
        c->options.bias = mha_tensor_4d((*maps)[1], w->bias == 4 ? MHA_FLOAT32 : s.type, 1, s.H, s.Tq, s.Tk);
    }
    if (w->lengths) {
        for (int64_t b = 0; b < s.B; b++) lengths[b] = rng_between(r, 1, s.Tk);
        (*maps)[2] = gpu_make((size_t)s.B * sizeof *lengths);
        gpu_write((*maps)[2], lengths, (size_t)s.B * sizeof *lengths);
        c->options.key_lengths = mha_tensor_1d((*maps)[2], MHA_INT64, s.B);
    }
}

/* Lengths of rows and keys of which none is brief, though the call may have sequences that are. */
static void apply_long_rows(call *c, void **memory, rng *r)
{
    enum { BRIEF = 512 };
    int64_t lengths[64];
    for (int64_t b = 0; b < c->shape.B; b++) lengths[b] = rng_between(r, BRIEF + 1, c->shape.Tq);
    *memory = gpu_make((size_t)c->shape.B * sizeof *lengths);
    gpu_write(*memory, lengths, (size_t)c->shape.B * sizeof *lengths);
    c->options.query_lengths = c->options.key_lengths = mha_tensor_1d(*memory, MHA_INT64, c->shape.B);
}

/* Tensors `from` to `to` - 1 of a call, into `bytes`. */
static void read_results(const call *c, int from, int to, char *bytes)
{
    for (int n = from; n < to; bytes += c->count[n] * 2, n++) gpu_read(bytes, c->device[n], (size_t)c->count[n] * 2);
}

/* A call, `times` times: forward, or backward of one forward call. */
static void check_often(mha_context *ctx, shape s, const way *w, bool backward, int times)
{
    rng r = rng_make(seed(), 5);
    s.causal = w->causal, s.align = MHA_ALIGN_BOTTOM_RIGHT;
    call c = call_make(s, &r);
    int from = backward ? DQ : OUT, to = backward ? TENSORS : DQ, wrong = 0;
    int64_t count = 0;
    void *maps[3] = {NULL};
    apply(&c, w, &maps, &r);
    if (w->long_rows) apply_long_rows(&c, &maps[2], &r);
    for (int n = from; n < to; n++) count += c.count[n];
    char *first = array(count, 2), *again = array(count, 2);
    bool runs = works(ctx, call_forward(ctx, &c), s);
    for (int n = 0; runs && n <= times; n++) {
        for (int t = from; t < to; t++) gpu_poison(c.device[t], (size_t)c.count[t] * 2);
        runs = works(ctx, backward ? call_backward(ctx, &c, true) : call_forward(ctx, &c), s);
        read_results(&c, from, to, n ? again : first);
        wrong += n > 0 && memcmp(first, again, (size_t)count * 2) != 0;
    }
    expect(!wrong, "%s, %s, %s: %d of %d repeats differ", shape_text(s), w->name, backward ? "backward" : "forward",
           wrong, times);
    for (int n = 0; n < 3; n++)
        if (maps[n]) expect(gpu_free(maps[n]), "%s: a kernel wrote behind its input", shape_text(s));
    free(first);
    free(again);
    call_free(&c);
}

static const mha_type types[] = {MHA_BFLOAT16, MHA_FLOAT16};

TEST(few_rows_against_many_keys)
{
    static const way lengths = {.name = "lengths", .lengths = true};
    static const struct {
        int64_t D, E, Tk;
    } sizes[] = {{64, 64, 1306}, {128, 128, 1306}, {256, 256, 700}, {136, 40, 700}, {48, 56, 4500}};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 10; n++) {
        shape s = {.B = 24, .H = 8, .G = 4, .Tq = 1 + n / 2 % 2, .type = types[n % 2]};
        s.D = sizes[n / 2].D, s.E = sizes[n / 2].E, s.Tk = sizes[n / 2].Tk;
        check_often(ctx, s, &lengths, false, (int)cases_from(3000));
    }
    mha_context_free(ctx);
}

/* Those of many query heads, whose sums another kernel adds up. */
TEST(many_rows_of_a_key_head)
{
    static const way lengths = {.name = "lengths", .lengths = true};
    static const struct {
        int64_t D, E, H;
    } sizes[] = {{64, 64, 24}, {128, 128, 40}, {192, 128, 128}, {128, 128, 96}};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 4; n++) {
        shape s = {.B = 12, .H = sizes[n].H, .G = 1, .Tq = 1, .Tk = 1306, .type = types[n % 2]};
        s.D = sizes[n].D, s.E = sizes[n].E;
        check_often(ctx, s, &lengths, false, (int)cases_from(500));
    }
    mha_context_free(ctx);
}

/* Few rows of tiles, so that many blocks begin and end beside each other. */
TEST(attention)
{
    static const int64_t widths[] = {64, 128, 256};
    enum { WAYS = sizeof ways / sizeof *ways };
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 3 * WAYS * 2; n++)
        check_often(
            ctx,
            (shape){.B = 8, .H = 8, .G = 4, .Tq = 160, .Tk = 460, .D = widths[n / 2 % 3], .type = types[n / 2 % 2]},
            &ways[n / 6], n % 2, (int)cases_from(400));
    mha_context_free(ctx);
}

/* Heads that blocks have whole, many on each multiprocessor. */
TEST(small_heads)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 16; n++)
        check_often(ctx,
                    (shape){.B = 64,
                            .H = 8,
                            .G = n / 8 ? 8 : 4,
                            .Tq = 50,
                            .Tk = 50 + n,
                            .D = n / 4 % 2 ? 32 : 16,
                            .type = types[n / 2 % 2]},
                    &ways[n / 8], n % 2, (int)cases_from(1000));
    mha_context_free(ctx);
}

/* Kernels for sequences that a call does not have end at once: those behind them must not begin before those in front have ended. */
TEST(no_sequence_is_brief)
{
    static const way long_rows = {.name = "long rows", .long_rows = true};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 4; n++)
        check_often(
            ctx, (shape){.B = 4, .H = 10, .G = 10, .Tq = 600, .Tk = 600, .D = n / 2 ? 128 : 64, .type = types[n % 2]},
            &long_rows, true, (int)cases_from(2000));
    mha_context_free(ctx);
}
