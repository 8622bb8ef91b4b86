/* Each option is on in about a third of the random cases, so that a case has several and most pairs meet many times in
 * a run; sizes lean to the small ones, where edges are. */
#include "support/cases.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

attention_case case_plain(int64_t B, int64_t H, int64_t G, int64_t Tq, int64_t Tk, int64_t D, int64_t E)
{
    return (attention_case){.B = B,
                            .H = H,
                            .G = G,
                            .Tq = Tq,
                            .Tk = Tk,
                            .D = D,
                            .E = E,
                            .scale = NAN,
                            .window_left = MHA_UNLIMITED,
                            .window_right = MHA_UNLIMITED,
                            .mask = {-1, 0},
                            .bias = {-1, 0},
                            .lse = true,
                            .softmax = true,
                            .scores = -1,
                            .threads = 1,
                            .data_seed = 1};
}

void case_set_type(attention_case *c, mha_type type)
{
    c->type_q = c->type_k = c->type_v = c->type_out = c->type_bias = c->type_weights = c->type_scores = type;
}

/* ---- Drawing ---------------------------------------------------------------------------------------------------- */

static mha_type any_type(rng *r) { return (mha_type)rng_between(r, MHA_FLOAT32, MHA_FLOAT16); }

static int64_t any_width(rng *r)
{
    const int64_t usual[] = {16, 32, 64, 80, 128};
    if (rng_chance(r, 0.4)) return rng_between(r, 1, 9);
    return rng_chance(r, 0.7) ? rng_between(r, 10, 40) : usual[rng_between(r, 0, 4)];
}

static int64_t any_length(rng *r, int64_t most)
{
    if (rng_chance(r, 0.02)) return 0;
    if (rng_chance(r, 0.15)) return 1;
    return rng_chance(r, 0.5) ? rng_between(r, 2, 17) : rng_between(r, 18, most);
}

/* Long rows of keys, which are cut into chunks, are drawn often because few of them are small enough to be kept. */
static void draw_shape(rng *r, attention_case *c)
{
    do {
        c->B = rng_chance(r, 0.02) ? 0 : rng_between(r, 1, 3);
        c->G = rng_between(r, 1, 3);
        c->H = c->G * rng_between(r, 1, 4);
        if (rng_chance(r, 0.01)) c->H = c->G = 0;
        c->Tq = any_length(r, 70);
        c->Tk = rng_chance(r, 0.3) ? rng_between(r, 500, 1700) : any_length(r, 150);
        c->D = any_width(r);
        c->E = rng_chance(r, 0.5) ? c->D : any_width(r);
    } while (c->B * c->H * c->Tq * c->Tk * (c->D + c->E) > 400000);
}

static void draw_types(rng *r, attention_case *c)
{
    if (rng_chance(r, 0.75)) {
        case_set_type(c, rng_chance(r, 0.6) ? MHA_FLOAT32 : any_type(r));
    } else {
        c->type_q = any_type(r);
        c->type_k = any_type(r);
        c->type_v = any_type(r);
        c->type_out = any_type(r);
        c->type_bias = any_type(r);
        c->type_weights = any_type(r);
        c->type_scores = any_type(r);
    }
    c->fill = rng_chance(r, 0.3) ? FILL_PAINTED : FILL_NORMAL;
    c->layout_q = (layout)rng_between(r, 0, LAYOUTS - 1);
    c->layout_k = (layout)rng_between(r, 0, LAYOUTS - 1);
    c->layout_v = (layout)rng_between(r, 0, LAYOUTS - 1);
    c->layout_out = (layout)rng_between(r, 0, LAYOUT_ANY);
    c->layout_maps = (layout)rng_between(r, 0, LAYOUTS - 1);
    c->layout_rest = (layout)rng_between(r, 0, LAYOUT_ANY);
}

/* A window edge: mostly near, sometimes so far that p + edge would not fit 64 bits. */
static int64_t any_window(rng *r, int64_t Tk)
{
    if (rng_chance(r, 0.65)) return MHA_UNLIMITED;
    return rng_chance(r, 0.1) ? INT64_MAX : rng_between(r, 0, Tk / 2 + 1);
}

static void draw_sight(rng *r, attention_case *c)
{
    c->causal = rng_chance(r, 0.35);
    c->align = (mha_align)rng_between(r, MHA_ALIGN_TOP_LEFT, MHA_ALIGN_OFFSET);
    c->offset = rng_between(r, -c->Tq - 1, c->Tk + 1);
    if (rng_chance(r, 0.05)) c->offset = rng_chance(r, 0.5) ? (INT64_C(1) << 40) - 4 : -(INT64_C(1) << 40);
    c->window_left = any_window(r, c->Tk);
    c->window_right = any_window(r, c->Tk);
    c->lengths = rng_chance(r, 0.3);
    if (rng_chance(r, 0.35)) c->mask = (broadcast){(int)rng_between(r, 1, 4), (unsigned)rng_between(r, 0, 15)};
    if (rng_chance(r, 0.35)) c->bias = (broadcast){(int)rng_between(r, 1, 4), (unsigned)rng_between(r, 0, 15)};
    c->bias_hides = rng_chance(r, 0.4);
    c->ragged_q = rng_chance(r, 0.2);
    c->ragged_k = rng_chance(r, 0.2);
    c->padding = rng_chance(r, 0.25);
}

static void draw_rest(rng *r, attention_case *c)
{
    if (rng_chance(r, 0.3)) c->scale = (float)(rng_normal(r) / sqrt((double)c->D));
    if (rng_chance(r, 0.25)) c->softcap = (float)(0.5 + 30 * rng_uniform(r) * rng_uniform(r));
    if (rng_chance(r, 0.25)) c->alibi = (int)rng_between(r, 1, 2);
    c->sinks = rng_chance(r, 0.25);
    if (rng_chance(r, 0.25)) c->dropout = rng_chance(r, 0.05) ? 1.0f : (float)(0.9 * rng_uniform(r));
    c->dropout_seed = rng_bits(r);
    c->dropout_stream = rng_bits(r);
    c->lse = rng_chance(r, 0.7);
    c->softmax = rng_chance(r, 0.7);
    c->weights = rng_chance(r, 0.35) ? (int)rng_between(r, 1, 2) : 0;
    c->scores = rng_chance(r, 0.35) ? (int)rng_between(r, MHA_STAGE_SCALED, MHA_STAGE_DROPPED) : -1;
    c->poison = rng_chance(r, 0.5);
    c->threads = (int)rng_between(r, 1, 3);
    c->data_seed = rng_bits(r);
}

attention_case case_random(rng *r)
{
    attention_case c = case_plain(1, 1, 1, 1, 1, 1, 1);
    draw_shape(r, &c);
    draw_types(r, &c);
    draw_sight(r, &c);
    draw_rest(r, &c);
    return c;
}

attention_case case_random_float32(rng *r)
{
    attention_case c = case_random(r);
    case_set_type(&c, MHA_FLOAT32);
    c.mask.rank = c.bias.rank = -1;
    c.softcap = c.dropout = 0;
    c.alibi = c.weights = 0;
    c.scores = -1;
    if (!(c.scale > 0)) c.scale = NAN; /* the default */
    c.D = 4 * rng_between(r, 1, 32), c.E = 4 * rng_between(r, 1, 32);
    if (rng_chance(r, 0.3)) c.Tq += rng_between(r, 0, 100), c.Tk += rng_between(r, 0, 200);
    return c;
}

/* ---- Printing --------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

static void describe_sight(const attention_case *c, char *text, size_t size)
{
    const char *align[] = {"top-left", "bottom-right", "offset"};
    if (c->causal) add(text, size, " causal");
    add(text, size, " %s", align[c->align]);
    if (c->align == MHA_ALIGN_OFFSET) add(text, size, " %lld", (long long)c->offset);
    if (c->window_left >= 0) add(text, size, " window_left %lld", (long long)c->window_left);
    if (c->window_right >= 0) add(text, size, " window_right %lld", (long long)c->window_right);
    if (c->padding) add(text, size, " query_lengths");
    if (c->lengths) add(text, size, " key_lengths");
    if (c->mask.rank >= 0) add(text, size, " mask(rank %d, full %x)", c->mask.rank, c->mask.full);
    if (c->bias.rank >= 0) add(text, size, " bias(rank %d, full %x)", c->bias.rank, c->bias.full);
    if (c->bias.rank >= 0 && c->bias_hides) add(text, size, " with -inf");
    if (c->ragged_q) add(text, size, " query_starts");
    if (c->ragged_k) add(text, size, " key_starts");
}

void case_describe(const attention_case *c, char *text, size_t size)
{
    const char *kind[] = {"dense", "swapped", "any", "broadcast"};
    text[0] = 0;
    add(text, size, "B%lld H%lld G%lld Tq%lld Tk%lld D%lld E%lld", (long long)c->B, (long long)c->H, (long long)c->G,
        (long long)c->Tq, (long long)c->Tk, (long long)c->D, (long long)c->E);
    add(text, size, ", q %s %s, k %s %s", mha_type_name(c->type_q), kind[c->layout_q], mha_type_name(c->type_k),
        kind[c->layout_k]);
    add(text, size, ", v %s %s, out %s %s, maps %s, rest %s", mha_type_name(c->type_v), kind[c->layout_v],
        mha_type_name(c->type_out), kind[c->layout_out], kind[c->layout_maps], kind[c->layout_rest]);
    add(text, size, ", %s,", c->fill == FILL_PAINTED ? "painted" : "normal");
    describe_sight(c, text, size);
    if (!isnan(c->scale)) add(text, size, " scale %g", (double)c->scale);
    if (c->softcap > 0) add(text, size, " softcap %g", (double)c->softcap);
    if (c->alibi) add(text, size, " alibi(rank %d)", c->alibi);
    if (c->sinks) add(text, size, " sinks");
    if (c->dropout > 0) add(text, size, " dropout %g", (double)c->dropout);
    if (c->lse) add(text, size, " lse");
    if (c->softmax) add(text, size, " softmax");
    if (c->weights)
        add(text, size, " weights(%s %s)", c->weights == 1 ? "each" : "mean", mha_type_name(c->type_weights));
    if (c->scores >= 0) add(text, size, " scores(stage %d %s)", c->scores, mha_type_name(c->type_scores));
    if (c->poison) add(text, size, " poison");
    add(text, size, " threads %d", c->threads);
}

const char *case_hide(attention_case *c, int way)
{
    const char *name[] = {"key_lengths", "mask",       "bias of -inf", "causal",
                          "window",      "key_starts", "both starts",  "bottom-right"};
    c->lengths = way == 0;
    if (way == 1) c->mask = (broadcast){4, 9};
    if (way == 2) c->bias = (broadcast){2, 8};
    c->bias_hides = way == 2;
    c->causal = way == 3 || way == 7;
    if (way == 4) c->window_left = c->window_right = 2;
    c->ragged_k = way == 5 || way == 6;
    c->ragged_q = way == 6;
    if (way == 7) c->align = MHA_ALIGN_BOTTOM_RIGHT;
    return name[way];
}
