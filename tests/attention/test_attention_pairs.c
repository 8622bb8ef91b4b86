/* Every option with every other one, on a small shape and on one that spans several tiles, against the oracle. */
#include "support/harness.h"
#include "support/problem.h"

typedef struct setting {
    const char *name;
    void (*apply)(attention_case *c);
} setting;

/* ---- The settings ----------------------------------------------------------------------------------------------- */

static void causal(attention_case *c) { c->causal = true; }

static void bottom_right(attention_case *c)
{
    c->align = MHA_ALIGN_BOTTOM_RIGHT;
    if (c->window_right < 0) c->causal = true;
}

static void offset(attention_case *c)
{
    c->align = MHA_ALIGN_OFFSET;
    c->offset = -2;
    if (c->window_right < 0) c->causal = true;
}

static void far_offset(attention_case *c)
{
    c->align = MHA_ALIGN_OFFSET;
    c->offset = c->Tk / 2;
    if (c->window_left < 0) c->window_left = c->Tk / 2;
}

static void window_left(attention_case *c) { c->window_left = 3; }
static void window_none(attention_case *c) { c->window_left = c->window_right = 0; }
static void window_right(attention_case *c) { c->window_right = 2; }
static void window_both(attention_case *c)
{
    c->window_left = c->Tk / 3;
    c->window_right = 5;
}
static void lengths(attention_case *c) { c->lengths = true; }
static void mask_full(attention_case *c) { c->mask = (broadcast){4, 15}; }
static void mask_keys(attention_case *c) { c->mask = (broadcast){4, 9}; }  /* (B,1,1,Tk) */
static void mask_rows(attention_case *c) { c->mask = (broadcast){2, 12}; } /* (Tq,Tk) */
static void bias_full(attention_case *c) { c->bias = (broadcast){4, 15}; }
static void bias_heads(attention_case *c) { c->bias = (broadcast){3, 14}; } /* (H,Tq,Tk) */
static void bias_hides(attention_case *c)
{
    if (c->bias.rank < 0) c->bias = (broadcast){4, 15};
    c->bias_hides = true;
}
static void alibi(attention_case *c) { c->alibi = 1; }
static void alibi_batch(attention_case *c) { c->alibi = 2; }
static void sinks(attention_case *c) { c->sinks = true; }
static void ragged_queries(attention_case *c) { c->ragged_q = true; }
static void ragged_keys(attention_case *c) { c->ragged_k = true; }
static void softcap(attention_case *c) { c->softcap = 2.5f; }
static void scale(attention_case *c) { c->scale = -0.3f; }
static void dropout(attention_case *c)
{
    c->dropout = 0.25f;
    c->dropout_seed = 0x123456789ABCDEF;
    c->dropout_stream = UINT64_MAX; /* stream + b wraps */
}
static void weights(attention_case *c) { c->weights = 1; }
static void mean_weights(attention_case *c) { c->weights = 2; }
static void scaled(attention_case *c) { c->scores = MHA_STAGE_SCALED; }
static void capped(attention_case *c) { c->scores = MHA_STAGE_CAPPED; }
static void masked(attention_case *c) { c->scores = MHA_STAGE_MASKED; }
static void softmaxed(attention_case *c) { c->scores = MHA_STAGE_SOFTMAX; }
static void dropped(attention_case *c) { c->scores = MHA_STAGE_DROPPED; }
static void bfloat16(attention_case *c) { case_set_type(c, MHA_BFLOAT16); }
static void float16(attention_case *c) { case_set_type(c, MHA_FLOAT16); }
static void half_keys(attention_case *c) { c->type_k = c->type_v = MHA_FLOAT16; }
static void brain_out(attention_case *c) { c->type_out = c->type_weights = MHA_BFLOAT16; }
static void swapped(attention_case *c)
{
    c->layout_q = c->layout_k = c->layout_v = c->layout_out = c->layout_maps = c->layout_rest = LAYOUT_SWAPPED;
}
static void any_strides(attention_case *c)
{
    c->layout_q = c->layout_k = c->layout_v = c->layout_out = c->layout_maps = c->layout_rest = LAYOUT_ANY;
}
static void repeated(attention_case *c) { c->layout_k = c->layout_v = c->layout_maps = LAYOUT_BROADCAST; }
static void groups(attention_case *c) { c->G = c->H / 2; }
static void one_group(attention_case *c) { c->G = 1; }
static void wide_values(attention_case *c) { c->E = c->D + 13; }
static void one_query(attention_case *c) { c->Tq = 1; }
static void poison(attention_case *c) { c->poison = true; }
static void threads(attention_case *c) { c->threads = 3; }

#define SETTING(f) \
    {              \
#f, f      \
    }
static const setting settings[] = {
    SETTING(one_query),   SETTING(causal),       SETTING(bottom_right), SETTING(offset),      SETTING(far_offset),
    SETTING(window_left), SETTING(window_right), SETTING(window_none),  SETTING(window_both), SETTING(lengths),
    SETTING(mask_full),   SETTING(mask_keys),    SETTING(mask_rows),    SETTING(bias_full),   SETTING(bias_heads),
    SETTING(bias_hides),  SETTING(alibi),        SETTING(alibi_batch),  SETTING(sinks),       SETTING(ragged_queries),
    SETTING(ragged_keys), SETTING(softcap),      SETTING(scale),        SETTING(dropout),     SETTING(weights),
    SETTING(scaled),      SETTING(capped),       SETTING(masked),       SETTING(softmaxed),   SETTING(dropped),
    SETTING(bfloat16),    SETTING(float16),      SETTING(half_keys),    SETTING(brain_out),   SETTING(swapped),
    SETTING(any_strides), SETTING(repeated),     SETTING(groups),       SETTING(one_group),   SETTING(wide_values),
    SETTING(poison),      SETTING(threads),      SETTING(mean_weights),
};

/* ---- The pairs -------------------------------------------------------------------------------------------------- */

static void run_pair(attention_case c, const setting *a, const setting *b)
{
    a->apply(&c);
    b->apply(&c);
    problem *p = problem_make(&c);
    problem_solve(p);
    for_each_isa (isa) {
        char why[300] = "", text[900];
        mha_context *ctx = context_make(isa, c.threads, (mha_parallel){NULL, NULL}, NULL);
        mha_status status = problem_run(p, ctx);
        if (status) snprintf(why, sizeof why, "%s: %s", mha_status_name(status), mha_context_error(ctx));
        case_describe(&c, text, sizeof text);
        expect(!status && problem_check(p, why, sizeof why), "%s + %s, %s: %s\n      %s", a->name, b->name, isa, why,
               text);
        mha_context_free(ctx);
    }
    problem_free(p);
}

static void run_pairs(attention_case c)
{
    size_t count = sizeof settings / sizeof *settings;
    for (size_t a = 0; a < count; a++)
        for (size_t b = a; b < count; b++) {
            c.data_seed = a * count + b;
            if (sampled()) run_pair(c, &settings[a], &settings[b]);
        }
}

TEST(every_pair_of_options_on_a_small_shape) { run_pairs(case_plain(2, 4, 4, 5, 11, 8, 8)); }

TEST(every_pair_of_options_on_several_tiles)
{
    attention_case c = case_plain(2, 2, 2, 36, 75, 6, 5);
    c.fill = FILL_PAINTED;
    run_pairs(c);
}
