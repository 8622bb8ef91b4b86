/* The oracle's layer by itself: cases worked out on paper, a layer spelled out a second time, gradients against
 * differences of the forward pass (as in test_backward_oracle.c), and properties that hold to the last bits. */
#include "support/harness.h"
#include "support/numbers.h"

#include <layer.h>

#define STEP      1e-3
#define TOLERANCE 1e-7

/* ---- A layer with any set of options ---------------------------------------------------------------------------- */

enum {
    IN_BIAS = 1 << 0,
    NO_OUT = 1 << 1,
    BIAS_KV = 1 << 2,
    ZERO_KV = 1 << 3,
    NORM = 1 << 4,
    ROTARY = 1 << 5,
    INTERLEAVED = 1 << 6,
    PARTLY = 1 << 7, /* half of D is rotated */
    POSITIONS = 1 << 8,
    GATES = 1 << 9,
    SINKS = 1 << 10,
    CAUSAL = 1 << 11,
    WINDOW = 1 << 12,
    SOFTCAP = 1 << 13,
    LENGTHS = 1 << 14,
    RAGGED = 1 << 15,
    MASK = 1 << 16,
    BIAS = 1 << 17,
    ALIBI = 1 << 18,
    DROPOUT = 1 << 19,
    OFFSETS = 1 << 20,
    CENTRED = 1 << 21,
    NORM_BIAS = 1 << 22,
    NORM_OWN = 1 << 23,
    NORM_ALL = 1 << 24,
    WIDER = 1 << 25, /* results than queries */
    FREQUENCIES = 1 << 26,
    TABLES = 1 << 27,
    ALL_OPTIONS = (1 << 28) - 1
};

enum { B = 2, TQ = 3, TK = 4, M = 4, MK = 3, MV = 2, H = 4, G = 2, D = 4, E = 3, NN_PARTS = 21 };

/* One input or parameter: its numbers, which are the subject's to move, and its gradient. */
typedef struct part {
    const char *name;
    double *x, *gradient;
    int64_t count;
} part;

typedef struct subject {
    ref_layer l;
    ref_layer_gradients g;
    part parts[NN_PARTS];
    int count;
    int64_t width, columns; /* of out, of weights */
    double *out, *dout;     /* (B,Tq,width) */
    double *weights, *mean; /* (B,H,Tq,columns), (B,Tq,columns) */
    bool mask[B * H * TQ * TK];
} subject;

static const int64_t queries[B] = {2, 3}, keys[B] = {4, 2}, lengths[B] = {3, 1}, offsets[B] = {1, -1};
static const int64_t query_positions[B * TQ] = {4, 2, 0, 7, 8, 9}, key_positions[B * TK] = {0, 3, 5, 6, 2, 2, 8, 1};
static const double frequencies[D / 2] = {0.7, 0.05};
static const double cosines[10 * D / 2] = {1,  .9, .2, .3, -.4, .5, .6, -.7, .8,  .9,
                                           .1, -1, .3, .2, .5,  .4, .7, .6,  -.9, .8};
static const double sines[10 * D / 2] = {0, .1, .9, -.2, .8,  .3, -.7, .4, .6, .5,
                                         1, .2, .9, .3,  -.8, .4, .7,  .5, .6, .1};

static int norm_span(int options) { return options & NORM_ALL ? 2 : options & NORM_OWN ? 1 : 0; }

/* Makes a part. Its gradient starts as NaN, which must not be there after a backward pass. */
static const double *grow(subject *s, const char *name, double **gradient, int64_t count, bool wanted, rng *r)
{
    if (!wanted) return NULL;
    part *p = &s->parts[s->count++];
    *p = (part){name, array(count, sizeof(double)), array(count, sizeof(double)), count};
    for (int64_t n = 0; n < count; n++) p->x[n] = 0.7 * rng_normal(r), p->gradient[n] = NAN;
    *gradient = p->gradient;
    return p->x;
}

static void grow_parts(subject *s, int options, rng *r)
{
    ref_layer *l = &s->l;
    ref_layer_gradients *g = &s->g;
    l->query = grow(s, "query", &g->query, B * TQ * M, true, r);
    l->key = grow(s, "key", &g->key, B * TK * MK, true, r);
    l->value = grow(s, "value", &g->value, B * TK * MV, true, r);
    l->q_weight = grow(s, "q_weight", &g->q_weight, H * D * M, true, r);
    l->k_weight = grow(s, "k_weight", &g->k_weight, G * D * MK, true, r);
    l->v_weight = grow(s, "v_weight", &g->v_weight, G * E * MV, true, r);
    l->q_bias = grow(s, "q_bias", &g->q_bias, H * D, options & IN_BIAS, r);
    l->k_bias = grow(s, "k_bias", &g->k_bias, G * D, options & IN_BIAS, r);
    l->v_bias = grow(s, "v_bias", &g->v_bias, G * E, options & IN_BIAS, r);
    int64_t N = options & WIDER ? M + 2 : M, own_gains = norm_span(options) != 0;
    l->N = N == M ? 0 : N;
    l->out_weight = grow(s, "out_weight", &g->out_weight, N * H * E, !(options & NO_OUT), r);
    l->out_bias = grow(s, "out_bias", &g->out_bias, N, !(options & NO_OUT), r);
    l->bias_k = grow(s, "bias_k", &g->bias_k, G * D, options & BIAS_KV, r);
    l->bias_v = grow(s, "bias_v", &g->bias_v, G * E, options & BIAS_KV, r);
    l->q_norm = grow(s, "q_norm", &g->q_norm, own_gains ? H * D : D, options & NORM, r);
    l->k_norm = grow(s, "k_norm", &g->k_norm, own_gains ? G * D : D, options & NORM, r);
    bool shifted = options & NORM && options & NORM_BIAS;
    l->q_norm_bias = grow(s, "q_norm_bias", &g->q_norm_bias, own_gains ? H * D : D, shifted, r);
    l->k_norm_bias = grow(s, "k_norm_bias", &g->k_norm_bias, own_gains ? G * D : D, shifted, r);
    l->gates = grow(s, "gates", &g->gates, H, options & GATES, r);
    l->attention.sinks = grow(s, "sinks", &g->sinks, H, options & SINKS, r);
    l->attention.bias = grow(s, "bias", &g->bias, B * H * TQ * TK, options & BIAS, r);
    l->attention.alibi_slopes = grow(s, "slopes", &g->alibi_slopes, B * H, options & ALIBI, r);
}

static void set_options(subject *s, int options)
{
    ref_layer *l = &s->l;
    l->zero_kv = options & ZERO_KV;
    l->norm_epsilon = 0.1;
    l->norm_centred = options & CENTRED;
    l->norm_span = norm_span(options);
    if (options & FREQUENCIES) l->rotary_frequencies = frequencies, l->rotary_multiplier = 1.5;
    if (options & TABLES) l->rotary_cos = cosines, l->rotary_sin = sines;
    l->rotary_base = options & ROTARY ? 50 : 0;
    l->rotary_width = options & PARTLY ? D / 2 : 0;
    l->rotary_interleaved = options & INTERLEAVED;
    if (options & POSITIONS) l->query_positions = query_positions, l->key_positions = key_positions;

    ref_attention *a = &l->attention;
    a->scale = NAN;
    a->softcap = options & SOFTCAP ? 0.8 : 0;
    a->causal = options & CAUSAL;
    a->align = options & OFFSETS ? REF_OFFSET : options & GATES ? REF_BOTTOM_RIGHT : REF_TOP_LEFT;
    a->offsets = offsets;
    a->window_left = options & WINDOW ? 1 : -1;
    a->window_right = options & WINDOW && options & BIAS ? 0 : -1;
    if (options & RAGGED) a->queries = queries, a->keys = keys;
    if (options & LENGTHS) a->key_lengths = lengths;
    if (options & MASK) a->mask = s->mask;
    if (options & DROPOUT) a->dropout = 0.4, a->dropout_seed = 11, a->dropout_stream = 5;
}

static int64_t queries_of(const ref_layer *l, int64_t b) { return l->attention.queries ? queries[b] : l->Tq; }

static int64_t keys_of(const ref_layer *l, int64_t b)
{
    return l->attention.key_lengths ? lengths[b] : l->attention.keys ? keys[b] : l->Tk;
}

static double *own(subject *s, const char *name)
{
    for (int n = 0; n < s->count; n++)
        if (!strcmp(s->parts[n].name, name)) return s->parts[n].x;
    return NULL;
}

static void poison_rows(double *x, int64_t rows, int64_t from, int64_t width)
{
    for (int64_t n = from * width; n < rows * width; n++) x[n] = NAN;
}

/* What does not exist is NaN; so is a bias where something else hides the key. */
static void poison(subject *s)
{
    double *bias = own(s, "bias");
    for (int64_t b = 0; b < B; b++) {
        poison_rows(own(s, "query") + b * TQ * M, TQ, queries_of(&s->l, b), M);
        poison_rows(own(s, "key") + b * TK * MK, TK, keys_of(&s->l, b), MK);
        poison_rows(own(s, "value") + b * TK * MV, TK, keys_of(&s->l, b), MV);
        poison_rows(s->dout + b * TQ * s->width, TQ, queries_of(&s->l, b), s->width);
    }
    ref_attention a = ref_layer_attention(&s->l);
    a.bias = NULL;
    for (int64_t n = 0; bias && n < B * H * TQ * TK; n++) {
        bool seen = ref_visible(&a, n / (H * TQ * TK), n / (TQ * TK) % H, n / TK % TQ, n % TK);
        bias[n] = !seen ? NAN : n % 7 == 0 ? -INFINITY : bias[n];
    }
}

static subject *subject_make(int options, uint64_t seed)
{
    rng r = rng_make(seed, (uint64_t)options);
    subject *s = array(1, sizeof *s);
    s->l = (ref_layer){.B = B, .Tq = TQ, .Tk = TK, .M = M, .Mk = MK, .Mv = MV, .H = H, .G = G, .D = D, .E = E};
    grow_parts(s, options, &r);
    set_options(s, options);
    for (int64_t n = 0; n < B * H * TQ * TK; n++) s->mask[n] = rng_chance(&r, 0.6);
    s->width = ref_layer_width(&s->l);
    s->columns = TK + ref_layer_extra(&s->l);
    s->out = array(B * TQ * s->width, sizeof(double));
    s->dout = array(B * TQ * s->width, sizeof(double));
    s->weights = array(B * H * TQ * s->columns, sizeof(double));
    s->mean = array(B * TQ * s->columns, sizeof(double));
    for (int64_t n = 0; n < B * TQ * s->width; n++) s->dout[n] = rng_normal(&r);
    poison_rows(s->out, B * TQ, 0, s->width); /* results are written, every one */
    poison_rows(s->weights, B * H * TQ, 0, s->columns);
    poison_rows(s->mean, B * TQ, 0, s->columns);
    poison(s);
    return s;
}

static void subject_free(subject *s)
{
    for (int n = 0; n < s->count; n++) free(s->parts[n].x), free(s->parts[n].gradient);
    free(s->out);
    free(s->dout);
    free(s->weights);
    free(s->mean);
    free(s);
}

static void forward(subject *s) { ref_layer_forward(&s->l, s->out, s->weights, s->mean); }

/* ---- Gradients against differences ------------------------------------------------------------------------------ */

static double loss(subject *s)
{
    double sum = 0;
    ref_layer_forward(&s->l, s->out, NULL, NULL);
    for (int64_t n = 0; n < B * TQ * s->width; n++)
        if (!isnan(s->dout[n])) sum += s->dout[n] * s->out[n];
    return sum;
}

static double loss_at(subject *s, double *x, double value)
{
    double kept = *x;
    *x = value;
    double there = loss(s);
    *x = kept;
    return there;
}

static double difference(subject *s, double *x)
{
    double near = loss_at(s, x, *x + STEP) - loss_at(s, x, *x - STEP);
    double far = loss_at(s, x, *x + 2 * STEP) - loss_at(s, x, *x - 2 * STEP);
    return (8 * near - far) / (12 * STEP);
}

static void check_gradients(int options, uint64_t seed)
{
    subject *s = subject_make(options, seed);
    ref_layer_backward(&s->l, s->dout, &s->g);
    for (int p = 0; p < s->count; p++)
        for (int64_t n = 0; n < s->parts[p].count; n++) {
            double *x = &s->parts[p].x[n], got = s->parts[p].gradient[n];
            double want = isfinite(*x) ? difference(s, x) : 0;
            double allowed = isfinite(*x) ? TOLERANCE * (1 + fabs(want)) : 0; /* what nobody looks at gets 0 exactly */
            expect(fabs(got - want) <= allowed, "d%s[%d] is %.12g, differences say %.12g; options %x", s->parts[p].name,
                   (int)n, got, want, (unsigned)options);
        }
    subject_free(s);
}

TEST(gradients_with_one_option)
{
    check_gradients(0, 1);
    for (int option = 1; option < ALL_OPTIONS; option <<= 1) check_gradients(option, 2);
    check_gradients(ROTARY | INTERLEAVED, 2);
    check_gradients(ROTARY | PARTLY, 2);
    for (int span = 0; span <= NORM_OWN + NORM_ALL; span += NORM_OWN) {
        check_gradients(NORM | span, 2);
        check_gradients(NORM | CENTRED | NORM_BIAS | span, 2);
    }
    check_gradients(ALL_OPTIONS, 2);
}

TEST(gradients_with_any_options)
{
    for (uint64_t n = 0; n < 40; n++) {
        rng r = rng_make(3, n);
        check_gradients((int)(rng_bits(&r) & ALL_OPTIONS), n);
    }
}

/* What the layer does not have gets zeros, and what is not wanted is left out without a change to the rest. */
TEST(gradients_not_there_and_not_wanted)
{
    subject *s = subject_make(CAUSAL, 4);
    double lacking[H * D], key[B * TK * MK];
    for (int n = 0; n < H * D; n++) lacking[n] = NAN;
    ref_layer_backward(&s->l, s->dout, &s->g);
    ref_layer_backward(&s->l, s->dout, &(ref_layer_gradients){.key = key, .q_bias = lacking});
    for (int n = 0; n < H * D; n++) expect(lacking[n] == 0, "dq_bias[%d] of no bias is %g", n, lacking[n]);
    expect(!memcmp(key, s->g.key, sizeof key), "dkey alone is not dkey among others");
    ref_layer_backward(&s->l, s->dout, &(ref_layer_gradients){.sinks = lacking, .gates = lacking, .bias_k = lacking});
    expect(lacking[0] == 0, "dsinks of none");
    subject_free(s);
}

/* ---- On paper --------------------------------------------------------------------------------------------------- */

static const double one = 1, half = 0.5, two = 2, log2_ = 0.6931471805599453, log3_ = 1.0986122886681098;

static bool close(double a, double b) { return fabs(a - b) < 1e-13; }

/* Everything of width 1, scale 1: the scores are the keys, 0 and log 2, log 3 from bias_kv and 0 from zero_kv. */
static ref_layer narrow(const double *key, const double *value)
{
    static const double bias_v = 35;
    ref_layer l = {.B = 1, .Tq = 1, .Tk = 2, .M = 1, .Mk = 1, .Mv = 1, .H = 1, .G = 1, .D = 1, .E = 1};
    l.query = l.q_weight = l.k_weight = l.v_weight = l.out_bias = &one;
    l.key = key, l.value = value;
    l.out_weight = &two, l.gates = &half;
    l.bias_k = &log3_, l.bias_v = &bias_v, l.zero_kv = true;
    l.attention.scale = 1;
    l.attention.window_left = l.attention.window_right = -1;
    return l;
}

TEST(extra_keys_on_paper)
{
    const double key[2] = {0, log2_}, value[2] = {7, 14};
    double out, w[4];
    ref_layer l = narrow(key, value);
    ref_layer_forward(&l, &out, w, NULL);
    expect(close(w[0], 1 / 7.0) && close(w[1], 2 / 7.0) && close(w[2], 3 / 7.0) && close(w[3], 1 / 7.0), "%g %g %g %g",
           w[0], w[1], w[2], w[3]);
    expect(close(out, 21), "out %.17g", out); /* (7 + 28 + 105 + 0) / 7 = 20, half of it twice, and 1 */
    l.attention.causal = true;
    ref_layer_forward(&l, &out, w, NULL);
    expect(close(out, 23.4) && w[1] == 0 && close(w[2], 0.6), "causal: out %.17g, %g %g", out, w[1], w[2]);
    int64_t none = 0;
    l.attention.key_lengths = &none;
    ref_layer_forward(&l, &out, w, NULL);
    expect(close(out, 27.25) && w[0] == 0 && close(w[2], 0.75), "no keys: out %.17g, %g %g", out, w[0], w[2]);
}

TEST(gradients_on_paper)
{
    const double key[2] = {0, log2_}, value[2] = {7, 14};
    double query, dkey[2], dvalue[2], d[8], ds[2];
    ref_layer l = narrow(key, value);
    ref_layer_gradients g = {.query = &query, .key = dkey, .value = dvalue, .q_weight = d, .k_weight = d + 1};
    g.v_weight = d + 2, g.out_weight = d + 3, g.out_bias = d + 4, g.bias_k = d + 5, g.bias_v = d + 6, g.gates = d + 7;
    g.bias = ds;
    ref_layer_backward(&l, &one, &g); /* w (v - 20) is ds: -13, -12 and 45 sevenths */
    expect(close(dkey[0], -13 / 7.0) && close(dkey[1], -12 / 7.0), "dkey %g %g", dkey[0], dkey[1]);
    expect(close(ds[0], dkey[0]) && close(ds[1], dkey[1]), "ds %g %g", ds[0], ds[1]);
    expect(close(dvalue[0], 1 / 7.0) && close(dvalue[1], 2 / 7.0), "dvalue %g %g", dvalue[0], dvalue[1]);
    expect(close(query, (45 * log3_ - 12 * log2_) / 7) && close(d[0], query), "dquery %g, dWq %g", query, d[0]);
    expect(close(d[1], -12 * log2_ / 7) && close(d[2], 5), "dWk %g, dWv %g", d[1], d[2]);
    expect(close(d[3], 10) && d[4] == 1, "dWo %g, dbo %g", d[3], d[4]);
    expect(close(d[5], 45 / 7.0) && close(d[6], 3 / 7.0), "dbias_k %g, dbias_v %g", d[5], d[6]);
    expect(close(d[7], 40), "dgate %g", d[7]); /* dO = 2 meets o = 20 */
}

/* One query against unit vectors as keys: the logarithms of the weights are the elements of q, up to a constant. */
static void expect_q(ref_layer l, const double want[4], const char *what)
{
    static const double identity[16] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    double out[4], w[4];
    l.B = l.Tq = l.H = l.G = 1;
    l.Tk = l.M = l.Mk = l.Mv = l.D = l.E = 4;
    l.key = l.value = l.q_weight = l.k_weight = l.v_weight = identity;
    l.attention.scale = 1;
    l.attention.window_left = l.attention.window_right = -1;
    ref_layer_forward(&l, out, w, NULL);
    for (int d = 0; d < 4; d++) {
        double got = log(w[d] / w[0]);
        expect(close(got, want[d] - want[0]), "%s: q[%d] - q[0] is %.17g, not %.17g", what, d, got, want[d] - want[0]);
        expect(out[d] == w[d], "%s: value %d is changed, %.17g is not %.17g", what, d, out[d], w[d]);
    }
}

/* Position 1 and base 16: the pairs turn by 1 and by 16^(-2/4) = 1/4. The keys stand at 0, where nothing turns. */
TEST(rotary_on_paper)
{
    const double query[4] = {1, 2, 3, 5}, c = cos(1), s = sin(1), C = cos(0.25), S = sin(0.25);
    const int64_t place = 1, origin[4] = {0};
    ref_layer l = {.query = query, .rotary_base = 16, .query_positions = &place, .key_positions = origin};
    expect_q(l, (double[]){c - 3 * s, 2 * C - 5 * S, s + 3 * c, 2 * S + 5 * C}, "halves");
    l.rotary_interleaved = true;
    expect_q(l, (double[]){c - 2 * s, s + 2 * c, 3 * C - 5 * S, 3 * S + 5 * C}, "neighbours");
    l.rotary_width = 2;
    expect_q(l, (double[]){c - 2 * s, s + 2 * c, 3, 5}, "two of four");
    l.rotary_base = 0;
    expect_q(l, query, "none");
}

/* The squares of (1,3,5,1) have the mean 9; with 7 more, the root is 4. */
TEST(norm_on_paper)
{
    const double query[4] = {1, 3, 5, 1}, gain[4] = {4, 2, 8, 1};
    ref_layer l = {.query = query, .q_norm = gain, .norm_epsilon = 7};
    expect_q(l, (double[]){1, 1.5, 10, 0.25}, "norm");
}

/* The mean of (1,3,7,1) is 3, and the squares of (-2,0,4,-2) have the mean 6; with 10 more, the root is 4. */
TEST(centred_norm_on_paper)
{
    const double query[4] = {1, 3, 7, 1}, gain[4] = {4, 2, 8, 1}, bias[4] = {1, 0.5, 0, -1};
    ref_layer l = {.query = query, .q_norm = gain, .norm_epsilon = 10, .norm_centred = true};
    expect_q(l, (double[]){-2, 0, 8, -0.5}, "mean");
    l.q_norm_bias = bias;
    expect_q(l, (double[]){-1, 0.5, 8, -1.5}, "mean and bias");
}

/* Frequencies in place of a base, with a multiplier of queries and of keys; and tables in place of either. */
TEST(rotary_frequencies_on_paper)
{
    const double query[4] = {1, 2, 3, 5}, turns[2] = {0.5, 0.125}, c = cos(1) / 4, s = sin(1) / 4, C = cos(0.25) / 4,
                 S = sin(0.25) / 4, table_c[6] = {1, 1, 9, 9, 0.5, 0.25}, table_s[6] = {0, 0, 9, 9, 0.25, 0.125};
    const int64_t place = 2, origin[4] = {0};
    ref_layer l = {.query = query, .rotary_frequencies = turns, .rotary_multiplier = 0.5};
    l.query_positions = &place, l.key_positions = origin;
    expect_q(l, (double[]){c - 3 * s, 2 * C - 5 * S, s + 3 * c, 2 * S + 5 * C}, "frequencies");
    l.rotary_frequencies = NULL, l.rotary_cos = table_c, l.rotary_sin = table_s;
    expect_q(l, (double[]){-0.25, -0.125, 1.75, 1.5}, "tables");
}

/* ---- Spelled out ------------------------------------------------------------------------------------------------ */

/* sum_m a[m] b[m]. */
static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t m = 0; m < n; m++) sum += a[m] * b[m];
    return sum;
}

/* Element e of head h of row i, without gate: a sum over keys of products of rows of inputs with rows of weights. */
static double head_value(const ref_layer *l, int64_t b, int64_t i, int64_t h, int64_t e)
{
    int64_t g = h / 2;
    double total = 0, sum = 0;
    for (int64_t j = 0; j < TK; j++) {
        const double *key = l->key + (b * TK + j) * MK, *value = l->value + (b * TK + j) * MV;
        double s = 0;
        for (int64_t d = 0; d < D; d++) {
            double q = dot(l->q_weight + (h * D + d) * M, l->query + (b * TQ + i) * M, M) + l->q_bias[h * D + d];
            s += q * (dot(l->k_weight + (g * D + d) * MK, key, MK) + l->k_bias[g * D + d]);
        }
        total += exp(s / 2); /* sqrt(D) is 2 */
        sum += exp(s / 2) * (dot(l->v_weight + (g * E + e) * MV, value, MV) + l->v_bias[g * E + e]);
    }
    return sum / total;
}

TEST(a_plain_layer_spelled_out)
{
    subject *s = subject_make(IN_BIAS | GATES, 6);
    forward(s);
    for (int64_t row = 0; row < B * TQ; row++)
        for (int64_t m = 0; m < M; m++) {
            double want = s->l.out_bias[m];
            for (int64_t h = 0; h < H; h++)
                for (int64_t e = 0; e < E; e++)
                    want += s->l.out_weight[(m * H + h) * E + e] * s->l.gates[h] *
                            head_value(&s->l, row / TQ, row % TQ, h, e);
            expect(close(s->out[row * M + m], want), "out[%d,%d] %.17g, not %.17g", (int)row, (int)m,
                   s->out[row * M + m], want);
        }
    subject_free(s);
}

/* ---- Properties ------------------------------------------------------------------------------------------------- */

static int any_options(uint64_t n, int without)
{
    rng r = rng_make(7, n);
    return (int)(rng_bits(&r) & ALL_OPTIONS) & ~without;
}

/* Whether row i of (b,h) sees a key, extra ones included. */
static bool sees_any(const subject *s, int64_t b, int64_t h, int64_t i)
{
    ref_attention a = ref_layer_attention(&s->l);
    bool any = s->columns > TK && i < queries_of(&s->l, b);
    for (int64_t j = 0; j < TK; j++) any |= ref_visible(&a, b, h, i, j);
    return any;
}

TEST(weights_sum_to_one_and_their_mean_is_their_mean)
{
    for (uint64_t n = 0; n < 100; n++) {
        subject *s = subject_make(any_options(n, SINKS | DROPOUT), n);
        double mean[B * TQ * (TK + 2)] = {0};
        forward(s);
        for (int64_t row = 0; row < B * H * TQ; row++) {
            int64_t b = row / (H * TQ), h = row / TQ % H, i = row % TQ;
            double sum = 0;
            for (int64_t j = 0; j < s->columns; j++) {
                sum += s->weights[row * s->columns + j];
                mean[(b * TQ + i) * s->columns + j] += s->weights[row * s->columns + j] / H;
            }
            expect(close(sum, sees_any(s, b, h, i)), "row %d sums to %.17g", (int)row, sum);
        }
        for (int64_t m = 0; m < B * TQ * s->columns; m++) expect(close(mean[m], s->mean[m]), "mean[%d]", (int)m);
        subject_free(s);
    }
}

/* Sequence b of a batch is a batch of one that ends where the sequence ends, with the stream of b: dropout of extra
 * keys counts from the last key that exists. */
TEST(a_sequence_by_itself)
{
    for (uint64_t n = 0; n < 100; n++) {
        subject *s = subject_make(any_options(n, MASK | BIAS) | DROPOUT, n);
        forward(s);
        for (int64_t b = 0; b < B; b++) {
            ref_layer l = s->l;
            double out[TQ * H * E] = {0};
            l.B = 1, l.Tq = queries_of(&s->l, b), l.Tk = keys_of(&s->l, b);
            l.query += b * TQ * M, l.key += b * TK * MK, l.value += b * TK * MV;
            if (l.query_positions) l.query_positions += b * TQ, l.key_positions += b * TK;
            if (l.attention.alibi_slopes) l.attention.alibi_slopes += b * H;
            l.attention.offsets += b, l.attention.dropout_stream += (uint64_t)b;
            l.attention.queries = l.attention.keys = l.attention.key_lengths = NULL;
            ref_layer_forward(&l, out, NULL, NULL);
            for (int64_t m = 0; m < TQ * s->width; m++) /* rows past the end are zeros */
                expect(out[m] == s->out[b * TQ * s->width + m], "case %d, b %d: %g", (int)n, (int)b, out[m]);
        }
        subject_free(s);
    }
}

/* With projections that change nothing, a layer is attention, and its extra keys are keys like any others. */
TEST(extra_keys_are_keys)
{
    const double x[TQ * 2] = {1, -2, 0.5, 3, -1, 0.25}, identity[4] = {1, 0, 0, 1};
    const double bias_k[2] = {0.7, -0.3}, bias_v[2] = {4, -5};
    double k[2 * (TQ + 2)] = {0}, v[2 * (TQ + 2)] = {0}, q[2 * TQ], want[2 * TQ], out[TQ * 2];
    for (int64_t h = 0; h < 2; h++) {
        for (int64_t i = 0; i < TQ; i++) q[h * TQ + i] = k[h * (TQ + 2) + i] = v[h * (TQ + 2) + i] = x[i * 2 + h];
        k[h * (TQ + 2) + TQ] = bias_k[h];
        v[h * (TQ + 2) + TQ] = bias_v[h];
    }
    ref_attention how = {
        .softcap = 0.9, .scale = 1.3, .window_left = -1, .window_right = -1, .dropout = 0.3, .dropout_seed = 3};
    ref_attention a = how;
    a.B = 1, a.H = a.G = 2, a.Tq = TQ, a.Tk = TQ + 2, a.D = a.E = 1;
    a.q = q, a.k = k, a.v = v;
    ref_attention_forward(&a, &(ref_result){.out = want});

    ref_layer l = {.B = 1, .Tq = TQ, .Tk = TQ, .M = 2, .Mk = 2, .Mv = 2, .H = 2, .G = 2, .D = 1, .E = 1};
    l.query = l.key = l.value = x;
    l.q_weight = l.k_weight = l.v_weight = identity;
    l.bias_k = bias_k, l.bias_v = bias_v, l.zero_kv = true, l.attention = how;
    ref_layer_forward(&l, out, NULL, NULL);
    for (int64_t n = 0; n < 2 * TQ; n++) expect(out[n] == want[n % 2 * TQ + n / 2], "out[%d] %g", (int)n, out[n]);
}

/* The key of zero_kv is that of a bias_kv of zeros, in dropout too. */
TEST(zero_kv_is_a_bias_kv_of_zeros)
{
    const double nothing[G * D] = {0};
    for (uint64_t n = 0; n < 50; n++) {
        subject *s = subject_make(any_options(n, BIAS_KV) | ZERO_KV, n);
        double *out = array(B * TQ * s->width, sizeof *out);
        forward(s);
        ref_layer l = s->l;
        l.zero_kv = false, l.bias_k = l.bias_v = nothing;
        ref_layer_forward(&l, out, NULL, NULL);
        expect(!memcmp(out, s->out, (size_t)(B * TQ * s->width) * sizeof *out), "case %d", (int)n);
        free(out);
        subject_free(s);
    }
}

/* Attention gives zeros then, or the zero that zero_kv brings; bo is added all the same. */
TEST(where_all_is_hidden)
{
    for (int extra = 0; extra < 2; extra++) {
        subject *s = subject_make(MASK | CAUSAL | (extra ? ZERO_KV : 0), 8);
        memset(s->mask, 0, sizeof s->mask);
        forward(s);
        for (int64_t n = 0; n < B * TQ * M; n++) expect(s->out[n] == s->l.out_bias[n % M], "out[%d] is not bo", (int)n);
        for (int64_t n = 0; n < B * H * TQ * s->columns; n++)
            expect(s->weights[n] == (n % s->columns == TK), "weight %d is %g", (int)n, s->weights[n]);
        subject_free(s);
    }
}

TEST(a_gate_of_zero_gives_zeros)
{
    subject *s = subject_make(GATES | NO_OUT | IN_BIAS, 9);
    own(s, "gates")[0] = own(s, "gates")[1] = 0;
    own(s, "v_bias")[1] = NAN; /* of group 0, which heads 0 and 1 read */
    forward(s);
    for (int64_t n = 0; n < B * TQ * s->width; n++) {
        bool gated = n % s->width / E < 2;
        expect(gated ? s->out[n] == 0 : isfinite(s->out[n]) && s->out[n] != 0, "out[%d] is %g", (int)n, s->out[n]);
    }
    subject_free(s);
}

static void expect_out(const subject *s, const double *want, const char *what)
{
    for (int64_t n = 0; n < B * TQ * s->width; n++)
        expect(fabs(s->out[n] - want[n]) < 1e-12, "%s: out[%d] %.17g, was %.17g", what, (int)n, s->out[n], want[n]);
}

/* Rows of each head's weights in the order 0, 2, 1, 3: neighbours become the two halves. */
static void exchange_rows(double *weight, int64_t heads, int64_t width)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t m = 0; m < width; m++) {
            double *row = weight + h * D * width + m, kept = row[width];
            row[width] = row[2 * width];
            row[2 * width] = kept;
        }
}

/* Only differences of positions count; which elements are pairs is a matter of the order of the weights' rows; and a
 * normalised row does not depend on the length of what it was made from. */
TEST(rotary_and_norm_do_not_change_with)
{
    int64_t later[2][B * TK];
    subject *s = subject_make(ROTARY | NORM | POSITIONS, 10);
    double was[B * TQ * M];
    s->l.norm_epsilon = 0;
    for (int n = 0; n < D; n++) own(s, "q_norm")[n] = own(s, "k_norm")[n] = 1 + (n == 0 || n == 3);
    forward(s);
    memcpy(was, s->out, sizeof was);
    for (int n = 0; n < B * TK; n++)
        later[0][n] = n < B * TQ ? query_positions[n] + 20 : 0, later[1][n] = key_positions[n] + 20;
    s->l.query_positions = later[0], s->l.key_positions = later[1];
    forward(s);
    expect_out(s, was, "positions");
    for (int64_t n = 0; n < H * D * M; n++) own(s, "q_weight")[n] *= 3;
    for (int64_t n = 0; n < G * D * MK; n++) own(s, "k_weight")[n] *= 0.2;
    forward(s);
    expect_out(s, was, "lengths");
    exchange_rows(own(s, "q_weight"), H, M);
    exchange_rows(own(s, "k_weight"), G, MK);
    s->l.rotary_interleaved = true;
    forward(s);
    expect_out(s, was, "order");
    s->l.key_positions = key_positions;
    forward(s);
    expect(fabs(s->out[0] - was[0]) > 1e-6, "positions of keys alone change nothing");
    subject_free(s);
}
