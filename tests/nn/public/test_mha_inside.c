/* What lies inside a block: it fits together as the model's description says, in float64, for models of every shape and,
 * with MHA_MODELS, for those of every family; it is that of the sequence alone; and asking for it changes no bit. */
#include "model/weights.h"
#include "program/attention.h"
#include "nn/model/descriptions.h"
#include "public/model.h"
#include "support/contexts.h"
#include "support/harness.h"
#include "support/numbers.h"
#include <dirent.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { B = 3, TOKENS = 9, DECODER_TOKENS = 7, MOST = 512 };
static const int64_t some_lengths[B] = {TOKENS, 5, 8};

/* ---- Runs ------------------------------------------------------------------------------------------------------- */

/* What goes into a model: everything that it may read. */
typedef struct reading {
    int32_t tokens[B * TOKENS], decoder_tokens[B * DECODER_TOKENS];
    float *numbers; /* images, or features */
    int64_t lengths[B], T[2];
    mha_model_inputs in;
} reading;

static const nn_stack_config *side_of(const mha_model *m, bool decoder)
{
    return decoder ? &m->d.decoder : &m->d.encoder;
}

static void fill_ids(int32_t *ids, int64_t count, int64_t vocabulary)
{
    for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)((i * i + 3 * i + 2) % vocabulary);
}

static reading *read_all(const mha_model *m)
{
    reading *r = array(1, sizeof *r);
    bool first = !m->d.encoder.blocks.depth;
    const nn_input_config *c = &side_of(m, first)->input;
    int64_t fixed = nn_input_tokens(c), shape[4] = {B, c->channels, c->rows, c->columns};
    bool images = c->kind == NN_INPUT_PATCHES;
    if (!images) shape[1] = c->bins, shape[2] = 2 * fixed, shape[3] = 1;
    r->T[first] = fixed ? fixed : TOKENS;
    for (int b = 0; b < B; b++) r->lengths[b] = fixed ? fixed : some_lengths[b];
    if (fixed) {
        int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
        r->numbers = array(count, sizeof(float));
        for (int64_t i = 0; i < count; i++) r->numbers[i] = (float)(i * 37 % 251) / 251;
        if (images) r->in.images = mha_tensor_4d(r->numbers, MHA_FLOAT32, B, shape[1], shape[2], shape[3]);
        else r->in.features = mha_tensor_3d(r->numbers, MHA_FLOAT32, B, shape[1], shape[2]);
    } else {
        fill_ids(r->tokens, B * TOKENS, c->vocabulary);
        r->in.tokens = mha_tensor_2d(r->tokens, MHA_INT32, B, TOKENS);
        r->in.lengths = mha_tensor_1d(r->lengths, MHA_INT64, B);
    }
    if (!nn_description_is_pair(&m->d)) return r;
    r->T[1] = DECODER_TOKENS;
    fill_ids(r->decoder_tokens, B * DECODER_TOKENS, m->d.decoder.input.vocabulary);
    r->in.decoder_tokens = mha_tensor_2d(r->decoder_tokens, MHA_INT32, B, DECODER_TOKENS);
    return r;
}

/* Sequence b of what goes in, alone and without padding. */
static reading alone(const mha_model *m, const reading *all, int64_t b)
{
    reading r = *all;
    bool first = !m->d.encoder.blocks.depth;
    mha_tensor *batches[] = {&r.in.images, &r.in.features, &r.in.tokens, &r.in.decoder_tokens};
    for (int n = 0; n < 4; n++) {
        mha_tensor *t = batches[n];
        if (!t->rank) continue;
        t->data = (char *)t->data + (size_t)(b * t->stride[0]) * mha_type_size(t->type);
        t->size[0] = 1;
    }
    r.in.lengths = (mha_tensor)MHA_NO_TENSOR;
    if (r.in.tokens.rank) r.in.tokens.size[1] = r.T[first] = all->lengths[b];
    return r;
}

/* What comes out, dense float32, to be given back by drop. */
typedef struct outcome {
    mha_model_outputs out;
    mha_model_inside inside;
    mha_tensor maps[32];
    int64_t attentions;
} outcome;

static mha_tensor room(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return mha_tensor_4d(array(a * b * c * d + 1, sizeof(float)), MHA_FLOAT32, a, b, c, d);
}
static mha_tensor rows(int64_t a, int64_t b, int64_t c)
{
    return mha_tensor_3d(array(a * b * c + 1, sizeof(float)), MHA_FLOAT32, a, b, c);
}

static mha_model_inside make_inside(const mha_model *m, int64_t n, int64_t batch, const int64_t of[2])
{
    mha_model_attention a = mha_model_attention_get(m, n);
    int64_t T = of[a.decoder], S = of[a.decoder && !a.cross];
    mha_model_inside to = {.attention = n,
                           .x = rows(batch, T, a.model_width),
                           .read = rows(batch, T, a.model_width),
                           .q = room(batch, a.heads, T, a.width),
                           .k = room(batch, a.kv_heads, S, a.width),
                           .v = room(batch, a.kv_heads, S, a.width),
                           .scores = room(batch, a.heads, T, S),
                           .heads = room(batch, a.heads, T, a.width),
                           .attended = rows(batch, T, a.model_width),
                           .middle = rows(batch, T, a.model_width),
                           .mlp_read = rows(batch, T, a.model_width),
                           .mlp = rows(batch, T, a.model_width),
                           .y = rows(batch, T, a.model_width)};
    if (a.mlp) to.hidden = rows(batch, T, a.mlp);
    return to;
}

/* Runs the model; n is the attention of the block to look into, or -1. */
static outcome *run(mha_context *ctx, mha_model *m, const reading *r, int64_t n, const char *what)
{
    outcome *o = array(1, sizeof *o);
    bool last = m->d.decoder.blocks.depth > 0, pair = nn_description_is_pair(&m->d), pooled = m->d.output.pool;
    const mha_tensor *t = r->in.images.rank ? &r->in.images : r->in.features.rank ? &r->in.features : &r->in.tokens;
    int64_t batch = t->size[0], classes = nn_public_classes(m);
    const nn_blocks_config *b = &side_of(m, last)->blocks, *e = &m->d.encoder.blocks;
    o->attentions = mha_model_attention_count(m);
    for (int64_t k = 0; k < o->attentions; k++) {
        mha_model_attention a = mha_model_attention_get(m, k);
        o->maps[k] = room(batch, a.heads, r->T[a.decoder], r->T[a.decoder && !a.cross]);
    }
    o->out = (mha_model_outputs){.hidden = room(b->depth + 1, batch, r->T[last], b->width), .maps = o->maps};
    if (pooled) o->out.logits = mha_tensor_2d(array(batch * classes, sizeof(float)), MHA_FLOAT32, batch, classes);
    else o->out.logits = rows(batch, r->T[last], classes);
    if (pair) o->out.encoder_hidden = room(e->depth + 1, batch, r->T[0], e->width);
    if (n >= 0) o->inside = make_inside(m, n, batch, r->T);
    if (n >= 0) o->out.inside = &o->inside;
    expect(!mha_model_run(ctx, m, &o->out, &r->in), "%s: %s", what, mha_context_error(ctx));
    return o;
}

static void drop(outcome *o)
{
    mha_tensor inside[NN_PUBLIC_INSIDE];
    nn_public_inside_list(inside, &o->inside);
    for (int i = 0; i < NN_PUBLIC_INSIDE; i++) free(inside[i].data);
    for (int64_t n = 0; n < o->attentions; n++) free(o->maps[n].data);
    free(o->out.logits.data), free(o->out.hidden.data), free(o->out.encoder_hidden.data);
    free(o);
}

/* ---- In float64 ------------------------------------------------------------------------------------------------- */

/* One row of one sequence inside a block. */
typedef struct look {
    const mha_model *m;
    const nn_blocks_config *c;
    const nn_weight *part[NN_PART_KINDS];
    const outcome *o;
    int64_t l, b, i;
    mha_model_attention a;
    const char *what;
    double tolerance;
} look;

static const float *row_of(const look *s, mha_tensor t)
{
    return (const float *)t.data + s->b * t.stride[0] + s->i * t.stride[1];
}

/* Row i of head h. */
static const float *head_row(const look *s, mha_tensor t, int64_t h)
{
    return (const float *)t.data + s->b * t.stride[0] + h * t.stride[1] + s->i * t.stride[2];
}

static void expect_row(const look *s, const char *name, const float *got, const double *want, int64_t count)
{
    double far = 0, size = 1;
    for (int64_t n = 0; n < count; n++) {
        double difference = fabs((double)got[n] - want[n]);
        if (fabs(want[n]) > size) size = fabs(want[n]);
        if (!(difference <= far)) far = difference;
    }
    expect(far <= s->tolerance * size, "%s: %s of block %lld, row %lld of sequence %lld, is off by %g of %g", s->what,
           name, (long long)s->l, (long long)s->i, (long long)s->b, far, size);
}

static void expect_bits(const look *s, const char *name, const float *got, const float *want, int64_t count)
{
    expect(!memcmp(got, want, (size_t)count * sizeof *got), "%s: %s of block %lld, row %lld of sequence %lld", s->what,
           name, (long long)s->l, (long long)s->i, (long long)s->b);
}

static double number(const nn_weight *w, int64_t i)
{
    return element_get((const char *)w->value.data + (size_t)i * mha_type_size(w->value.type), w->value.type);
}

/* x becomes its norm; without a gain it stays. */
static void normalize(const look *s, double *x, nn_part_kind gain)
{
    const nn_weight *g = s->part[gain], *bias = s->part[gain + 1];
    int64_t M = s->c->width;
    double mean = 0, square = 0;
    if (!g) return;
    for (int64_t n = 0; n < M && s->c->norm == NN_LAYER_NORM; n++) mean += x[n] / (double)M;
    for (int64_t n = 0; n < M; n++) square += (x[n] - mean) * (x[n] - mean) / (double)M;
    for (int64_t n = 0; n < M; n++)
        x[n] = (x[n] - mean) / sqrt(square + (double)s->c->epsilon) * number(g, n) + (bias ? number(bias, n) : 0);
}

static void copy(double *to, const float *from, int64_t count)
{
    for (int64_t n = 0; n < count; n++) to[n] = (double)from[n];
}

/* y (M) = x (count) W^T + bias, and what the model does with it before it adds it. */
static void add_of(const look *s, double *y, const double *x, int64_t count, nn_part_kind weight, nn_part_kind norm,
                   nn_part_kind scale)
{
    const nn_weight *w = s->part[weight], *bias = s->part[weight + 1];
    bool behind = s->c->place == NN_NORM_BOTH || s->c->place == NN_NORM_AFTER;
    for (int64_t n = 0; n < s->c->width; n++) {
        y[n] = bias ? number(bias, n) : 0;
        for (int64_t k = 0; k < count; k++) {
            int64_t at = n * w->factor.stride[0] + k * w->factor.stride[1];
            size_t size = mha_type_size(w->factor.type);
            y[n] += x[k] * element_get((const char *)w->factor.data + (size_t)at * size, w->factor.type);
        }
    }
    if (behind) normalize(s, y, norm);
    for (int64_t n = 0; n < s->c->width; n++)
        y[n] *= (double)s->c->residual * (s->part[scale] ? number(s->part[scale], n) : 1);
}

/* Scores are those of q and k where nothing is added to them, weights are their softmax, heads are weights times values. */
static void expect_head(const look *s, int64_t h)
{
    const mha_model_inside *in = &s->o->inside;
    const nn_attention_config *a = nn_blocks_attention(s->c, s->l);
    mha_layer_options shape = nn_attention_layer_options(&s->m->d, s->c, s->l, s->a.cross);
    int64_t T = in->k.size[2], D = s->a.width, g = h / (s->a.heads / s->a.kv_heads);
    const float *scores = head_row(s, in->scores, h), *weights = head_row(s, s->o->maps[in->attention], h);
    const float *q = head_row(s, in->q, h), *k = in->k.data, *v = in->v.data;
    double most = -INFINITY, sum = 0, given = 0, want[MOST] = {0}, scaled[MOST];
    double scale = isnan(shape.scale) ? 1 / sqrt((double)D) : (double)shape.scale;
    bool placed = !s->a.cross && (a->alibi || s->c->attention[0].relative_buckets); /* which all blocks share */
    bool plain = a->softcap == 0 && !placed;
    k += s->b * in->k.stride[0] + g * in->k.stride[1], v += s->b * in->v.stride[0] + g * in->v.stride[1];
    for (int64_t j = 0; j < T; j++) {
        if ((double)scores[j] > most) most = (double)scores[j];
        given += (double)weights[j];
        scaled[j] = plain && isfinite(scores[j]) ? 0 : (double)scores[j];
        for (int64_t d = 0; d < D && plain && isfinite(scores[j]); d++)
            scaled[j] += scale * (double)q[d] * (double)k[j * D + d];
    }
    for (int64_t j = 0; j < T; j++) sum += want[j] = exp((double)scores[j] - most);
    for (int64_t j = 0; j < T; j++) want[j] *= given / sum; /* a sink takes its share of the weights */
    expect((a->sinks && !s->a.cross) || fabs(given - 1) < 1e-5, "%s: weights of head %lld add up to %g", s->what,
           (long long)h, given);
    expect_row(s, "weights", weights, want, T);
    for (int64_t j = 0; j < T; j++)
        if (isinf(scores[j])) scaled[j] = (double)FLT_MAX;
    float finite[MOST];
    for (int64_t j = 0; j < T; j++) finite[j] = isinf(scores[j]) ? FLT_MAX : scores[j];
    if (plain) expect_row(s, "scores", finite, scaled, T);
    memset(want, 0, sizeof want);
    for (int64_t j = 0; j < T; j++)
        for (int64_t d = 0; d < D; d++) want[d] += (double)weights[j] * (double)v[j * D + d];
    expect_row(s, "heads", head_row(s, in->heads, h), want, D);
}

static void expect_attention(const look *s)
{
    const mha_model_inside *in = &s->o->inside;
    bool before = s->c->place == NN_NORM_BEFORE || s->c->place == NN_NORM_BOTH, cross = s->part[NN_CROSS_Q] != NULL;
    int64_t M = s->c->width, H = s->a.heads, D = s->a.width;
    double row[MOST], concatenated[MOST];
    copy(row, row_of(s, in->x), M);
    if (before) normalize(s, row, NN_NORM1);
    if (before && s->part[NN_NORM1]) expect_row(s, "read", row_of(s, in->read), row, M);
    else expect_bits(s, "read", row_of(s, in->read), row_of(s, in->x), M);
    for (int64_t h = 0; h < H; h++) {
        expect_head(s, h);
        copy(concatenated + h * D, head_row(s, in->heads, h), D);
    }
    add_of(s, row, concatenated, H * D, NN_PROJ, before ? NN_NORM1_OUT : NN_NORM1, NN_SCALE1);
    expect_row(s, "attended", row_of(s, in->attended), row, M);
    if (cross) return;
    const float *base = row_of(s, s->c->from_norm ? in->read : in->x), *attended = row_of(s, in->attended);
    for (int64_t n = 0; n < M; n++) row[n] = (double)base[n] + (double)attended[n];
    if (s->c->place == NN_NORM_BEHIND) normalize(s, row, NN_NORM1);
    expect_row(s, "middle", row_of(s, in->middle), row, M);
}

/* Cross-attention begins with the rows that the attention before it leaves. */
static void expect_cross(const look *s)
{
    const mha_model_inside *in = &s->o->inside;
    bool before = s->c->place == NN_NORM_BEFORE || s->c->place == NN_NORM_BOTH;
    const float *x = row_of(s, in->x), *attended = row_of(s, in->attended);
    double row[MOST];
    for (int64_t h = 0; h < s->a.heads; h++) expect_head(s, h);
    for (int64_t n = 0; n < s->c->width; n++) row[n] = (double)x[n] + (double)attended[n];
    if (before && !s->c->from_norm) expect_row(s, "middle", row_of(s, in->middle), row, s->c->width);
}

static void expect_mlp(const look *s)
{
    const mha_model_inside *in = &s->o->inside;
    bool before = s->c->place == NN_NORM_BEFORE || s->c->place == NN_NORM_BOTH;
    const float *source = row_of(s, s->c->parallel ? in->x : in->middle);
    int64_t M = s->c->width;
    double row[MOST], hidden[MOST];
    copy(row, source, M);
    if (before) normalize(s, row, s->c->one_norm ? NN_NORM1 : NN_NORM2);
    expect_row(s, "mlp_read", row_of(s, in->mlp_read), row, M);
    if (s->c->one_norm) expect_bits(s, "mlp_read", row_of(s, in->mlp_read), row_of(s, in->read), M);
    if (!before) expect_bits(s, "mlp_read", row_of(s, in->mlp_read), source, M);
    if (!s->c->experts) {
        copy(hidden, row_of(s, in->hidden), s->c->mlp);
        add_of(s, row, hidden, s->c->mlp, NN_FC2, before ? NN_NORM2_OUT : NN_NORM2, NN_SCALE2);
        expect_row(s, "mlp", row_of(s, in->mlp), row, M);
    }
    const float *base = row_of(s, s->c->from_norm ? in->mlp_read : in->middle), *mlp = row_of(s, in->mlp);
    for (int64_t n = 0; n < M; n++) row[n] = (double)base[n] + (double)mlp[n];
    if (s->c->place == NN_NORM_BEHIND) normalize(s, row, NN_NORM2);
    expect_row(s, "y", row_of(s, in->y), row, M);
}

/* The rows of a block lie between those of `hidden`; the last one may be followed by a norm. */
static void expect_stream(const look *s)
{
    bool first = s->m->d.decoder.blocks.depth && !s->a.decoder;
    mha_tensor hidden = first ? s->o->out.encoder_hidden : s->o->out.hidden;
    const float *at = (const float *)hidden.data + s->b * hidden.stride[1] + s->i * hidden.stride[2];
    expect_bits(s, "x", row_of(s, s->o->inside.x), at + s->l * hidden.stride[0], s->c->width);
    if (s->l + 1 < s->c->depth || !s->c->final_norm)
        expect_bits(s, "y", row_of(s, s->o->inside.y), at + (s->l + 1) * hidden.stride[0], s->c->width);
}

/* How many rows sequence b has in a stack. */
static int64_t length_of(const mha_model *m, const reading *r, bool decoder, int64_t b)
{
    return decoder && nn_description_is_pair(&m->d) ? r->T[1] : r->lengths[b];
}

static void expect_inside(const mha_model *m, const nn_weights *weights, const reading *r, const outcome *o,
                          const char *what)
{
    look s = {.m = m, .o = o, .what = what, .tolerance = m->d.bfloat16 ? 0.04 : 3e-5};
    s.a = mha_model_attention_get(m, o->inside.attention);
    s.c = &side_of(m, s.a.decoder)->blocks, s.l = s.a.block;
    nn_weights_find(weights, s.a.decoder, s.l, s.part);
    for (s.b = 0; s.b < B; s.b++)
        for (s.i = 0; s.i < length_of(m, r, s.a.decoder, s.b); s.i++) {
            if (s.a.cross) expect_cross(&s);
            else expect_stream(&s), expect_attention(&s);
            expect_mlp(&s);
        }
}

/* ---- Cases ------------------------------------------------------------------------------------------------------ */

static bool same_bytes(mha_tensor a, mha_tensor b)
{
    size_t count = mha_type_size(a.type);
    for (int n = 0; n < a.rank; n++) count *= (size_t)a.size[n];
    return a.rank == b.rank && (!a.rank || !memcmp(a.data, b.data, count));
}

/* No bit of what else was asked for is another one. */
static void expect_undisturbed(const mha_model *m, const outcome *with, const outcome *without, const char *what)
{
    bool padded = !m->d.output.pool && !nn_description_is_pair(&m->d); /* rows of padding hold anything */
    bool same = padded || same_bytes(with->out.logits, without->out.logits);
    for (int64_t n = 0; n < with->attentions; n++) same = same && same_bytes(with->maps[n], without->maps[n]);
    expect(same, "%s: to ask for the inside of attention %lld changes other results", what,
           (long long)with->inside.attention);
}

/* Sequence b of the batch has the bits that it has alone. */
static void expect_alone(const mha_model *m, const reading *r, const outcome *all, const outcome *one, int64_t b,
                         const char *what)
{
    mha_tensor in_batch[NN_PUBLIC_INSIDE], by_itself[NN_PUBLIC_INSIDE];
    mha_model_attention a = mha_model_attention_get(m, all->inside.attention);
    enum { K = 3, V = 4 }; /* of the list */
    nn_public_inside_list(in_batch, &all->inside);
    nn_public_inside_list(by_itself, &one->inside);
    for (int n = 0; n < NN_PUBLIC_INSIDE; n++) {
        int64_t length = length_of(m, r, a.decoder && !(a.cross && (n == K || n == V)), b);
        mha_tensor t = in_batch[n], u = by_itself[n];
        int64_t heads = t.rank == 4 ? t.size[1] : 1, step = t.rank == 4 ? t.stride[2] : t.stride[1];
        int64_t other = t.rank == 4 ? u.stride[2] : u.stride[1]; /* rows of scores are as long as the sequence */
        bool same = true;
        for (int64_t h = 0; h < heads && t.rank; h++)
            for (int64_t i = 0; i < length; i++)
                same = same &&
                       !memcmp((const float *)t.data + b * t.stride[0] + h * t.stride[1] * (t.rank == 4) + i * step,
                               (const float *)u.data + h * u.stride[1] * (t.rank == 4) + i * other,
                               (size_t)other * sizeof(float));
        expect(same, "%s: %s of attention %lld, sequence %lld, is another one alone", what, nn_public_inside_name(n),
               (long long)all->inside.attention, (long long)b);
    }
}

/* All blocks of a model. */
static void try_model(mha_context *ctx, mha_model *m, const char *what)
{
    nn_weights weights;
    reading *r = read_all(m);
    expect(nn_weights_create(&weights, &m->d, m->parameters, m->bound.part), "no memory");
    nn_weights_round(&weights, ctx);
    outcome *without = run(ctx, m, r, -1, what);
    for (int64_t n = 0; n < without->attentions; n++) {
        outcome *with = run(ctx, m, r, n, what);
        expect_undisturbed(m, with, without, what);
        expect_inside(m, &weights, r, with, what);
        for (int64_t b = 0; b < B; b++) {
            reading single = alone(m, r, b);
            outcome *one = run(ctx, m, &single, n, what);
            expect_alone(m, r, with, one, b, what);
            drop(one);
        }
        drop(with);
    }
    drop(without);
    nn_weights_free(&weights);
    free(r->numbers);
    free(r);
}

/* A public model at random. */
static mha_model *make_model(uint64_t n, char *words, size_t size)
{
    rng r = rng_make(31, n);
    nn_description d = description_random_all(&r, n, (stacks)(n % STACKS));
    if (nn_description_is_pair(&d) && d.encoder.input.kind == NN_INPUT_PATCHES) /* no family has that, */
        d = description_random_all(&r, n, DECODER_ONLY);
    for (int k = 0; nn_description_is_pair(&d) && k < NN_ATTENTION_KINDS; k++) /* nor lengths that turn its encoder */
        d.encoder.blocks.attention[k].rotary.scaling = NN_ROTARY_AS_IS;
    d.bfloat16 = n % 5 == 4;
    model_case *c = model_case_make(&d, &r, 1, 2, false);
    mha_model *m = array(1, sizeof *m);
    *m = (mha_model){.d = d, .count = c->count, .parameters = array(c->count, sizeof(float))};
    memcpy(m->parameters, c->parameters, (size_t)c->count * sizeof(float));
    model_case_free(c);
    snprintf(words, size, "case %d%s: ", (int)n, d.bfloat16 ? ", bfloat16" : "");
    description_words(&d, words + strlen(words), size - strlen(words));
    return m;
}

TEST(the_inside_of_a_block_fits_together)
{
    char words[600];
    for (uint64_t n = 0; n < 120; n++) {
        if (!sampled()) continue;
        mha_context *ctx = context_make(NULL, 1 + (int)(n % 3), (mha_parallel){NULL, NULL}, NULL);
        mha_model *m = make_model(n, words, sizeof words);
        try_model(ctx, m, words);
        mha_model_free(m);
        mha_context_free(ctx);
    }
}

TEST(that_of_every_family_fits_together)
{
    const char *models = getenv("MHA_MODELS");
    char path[1000];
    int families = 0;
    snprintf(path, sizeof path, "%s/hf", models ? models : "");
    DIR *folder = models ? opendir(path) : NULL;
    if (!folder) {
        not_given("MHA_MODELS names no folder with hf/");
        return;
    }
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (struct dirent *e; (e = readdir(folder));) {
        mha_model *m = NULL;
        if (strchr(e->d_name, '.')) continue;
        snprintf(path, sizeof path, "%s/hf/%.200s", models, e->d_name);
        if (!expect(!mha_model_open(ctx, &m, path, NULL), "%s", mha_context_error(ctx))) continue;
        try_model(ctx, m, e->d_name);
        mha_model_free(m);
        families++;
    }
    expect(families >= 30, "only %d families", families);
    closedir(folder);
    mha_context_free(ctx);
}

/* ---- The attention as a layer --------------------------------------------------------------------------------------- */

/* What the names of an attention's tensors begin with. */
static bool find_prefix(const mha_model *m, mha_model_attention a, char *prefix, size_t size)
{
    const char *first = NULL, *last = NULL;
    int64_t n = 0;
    nn_part part;
    for (nn_parts w = nn_parts_of(&m->d); nn_parts_next(&w, &part); n++) {
        if (part.block != a.block || part.decoder != a.decoder || !m->bound.source[n]) continue;
        if (part.kind == (a.cross ? NN_CROSS_Q : NN_Q)) first = m->bound.source[n]->name;
        if (part.kind == (a.cross ? NN_CROSS_PROJ : NN_PROJ)) last = m->bound.source[n]->name;
    }
    if (!expect(first && last, "an attention without names")) return false;
    size_t same = 0;
    while (first[same] && first[same] == last[same]) same++;
    while (same && first[same - 1] != '.') same--;
    snprintf(prefix, size, "%.*s", (int)same, first);
    return true;
}

/* Attention n of a model, opened as a layer, computes what the model computes. */
static void try_layer(mha_context *ctx, mha_model *m, const char *path, const reading *r, int64_t n, int *opened)
{
    char prefix[200];
    mha_layer_file *file;
    mha_layer_file_options options = MHA_LAYER_FILE_DEFAULTS;
    mha_model_attention a = mha_model_attention_get(m, n);
    const nn_blocks_config *b = &side_of(m, a.decoder)->blocks;
    const nn_attention_config *own = nn_blocks_attention(b, a.block);
    if (!find_prefix(m, a, prefix, sizeof prefix)) return;
    options.prefix = prefix;
    mha_status status = mha_layer_file_open(ctx, &file, path, &options);
    if (!a.cross && (own->alibi || own->relative_buckets)) {
        expect(status == MHA_BAD_FILE && strstr(mha_context_error(ctx), "a single layer does not have"), "%s, %s: %s",
               path, prefix, status ? mha_context_error(ctx) : "opened");
        if (!status) mha_layer_file_free(file);
        return;
    }
    if (!expect(!status, "%s, %s: %s", path, prefix, mha_context_error(ctx))) return;
    outcome *want = run(ctx, m, r, n, path);
    const mha_model_inside *inside = &want->inside;
    mha_layer_inputs inputs = {.query = inside->read};
    if (a.cross) {
        const mha_tensor *rows_of_all = &want->out.encoder_hidden;
        int64_t T = rows_of_all->size[2], M = rows_of_all->size[3];
        const float *last = (const float *)rows_of_all->data + (rows_of_all->size[0] - 1) * T * M;
        inputs.key = mha_tensor_3d(last, MHA_FLOAT32, 1, T, M);
    }
    mha_model_inside got = make_inside(m, n, 1, r->T);
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.q = got.q, extras.k = got.k, extras.v = got.v, extras.heads = got.heads;
    status = mha_layer_forward(ctx, mha_layer_file_layer(file), got.attended, &extras, &inputs, NULL, NULL);
    bool longer = !a.cross && nn_rotary_regime(own, got.q.size[2]); /* than a rotary embedding of one kind reaches */
    expect(longer ? status == MHA_BAD_ARGUMENT && strstr(mha_context_error(ctx), "positions") : !status, "%s, %s: %s",
           path, prefix, mha_context_error(ctx));
    bool plain =
        b->place < NN_NORM_BOTH && !b->branch_scale && b->residual == 1; /* else more is done to what it gives */
    const struct {
        const char *what;
        mha_tensor got, want;
        bool counts;
    } all[] = {{"q", got.q, inside->q, true},
               {"k", got.k, inside->k, true},
               {"v", got.v, inside->v, true},
               {"heads", got.heads, inside->heads, true},
               {"attended", got.attended, inside->attended, plain}};
    for (size_t k = 0; k < sizeof all / sizeof *all && !longer; k++) {
        int64_t count = 1;
        for (int axis = 0; axis < all[k].got.rank; axis++) count *= all[k].got.size[axis];
        expect(!all[k].counts || memcmp(all[k].got.data, all[k].want.data, (size_t)count * sizeof(float)) == 0,
               "%s, %s: other %s", path, prefix, all[k].what);
    }
    mha_tensor tensors[NN_PUBLIC_INSIDE];
    nn_public_inside_list(tensors, &got);
    for (int i = 0; i < NN_PUBLIC_INSIDE; i++) free(tensors[i].data);
    drop(want);
    mha_layer_file_free(file);
    ++*opened;
}

TEST(a_layer_of_every_family_is_the_models_attention)
{
    const char *models = getenv("MHA_MODELS");
    char path[1000];
    int opened = 0;
    snprintf(path, sizeof path, "%s/hf", models ? models : "");
    DIR *folder = models ? opendir(path) : NULL;
    if (!folder) {
        not_given("MHA_MODELS names no folder with hf/");
        return;
    }
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (struct dirent *e; (e = readdir(folder));) {
        mha_model *m = NULL;
        if (strchr(e->d_name, '.')) continue;
        snprintf(path, sizeof path, "%s/hf/%.200s", models, e->d_name);
        if (!expect(!mha_model_open(ctx, &m, path, NULL), "%s", mha_context_error(ctx))) continue;
        reading *all = read_all(m), r = alone(m, all, 0);
        if (m->d.output.follows) r.in.decoder_tokens = (mha_tensor)MHA_NO_TENSOR, r.T[1] = r.T[0];
        for (int64_t n = 0; n < mha_model_attention_count(m); n++) try_layer(ctx, m, path, &r, n, &opened);
        free(all->numbers);
        free(all);
        mha_model_free(m);
    }
    expect(opened > 0, "no layer");
    closedir(folder);
    mha_context_free(ctx);
}

/* ---- Single calls ----------------------------------------------------------------------------------------------- */

/* A causal decoder, or one behind an encoder, with MLPs or with experts. */
static mha_model *small_model(bool pair, bool experts)
{
    nn_description d = {.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS};
    nn_stack_config *sides[] = {&d.encoder, &d.decoder};
    for (int n = pair ? 0 : 1; n < 2; n++) {
        sides[n]->input.vocabulary = 11;
        nn_blocks_config *b = &sides[n]->blocks;
        b->width = 12, b->depth = 2, b->heads = 3, b->mlp = 10, b->causal = n;
        if (experts) b->experts = 2, b->experts_used = 1;
    }
    d.output = (nn_output_config){.classes = 11, .scale = 1};
    rng r = rng_make(32, 0);
    model_case *c = model_case_make(&d, &r, 1, 2, false);
    mha_model *m = array(1, sizeof *m);
    *m = (mha_model){.d = d, .count = c->count, .parameters = array(c->count, sizeof(float))};
    memcpy(m->parameters, c->parameters, (size_t)c->count * sizeof(float));
    model_case_free(c);
    return m;
}

/* Wo leaves out a head that is off; what it gives is shown. */
TEST(heads_that_are_off_are_shown)
{
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = small_model(false, false);
    reading *r = read_all(m);
    outcome *on = run(ctx, m, r, 0, "all heads");
    expect(!mha_model_switch_off(ctx, m, (const bool[6]){true, true, true}, 6), "%s", mha_context_error(ctx));
    outcome *off = run(ctx, m, r, 0, "no head of the first block");
    expect(same_bytes(on->inside.heads, off->inside.heads), "other heads");
    const nn_weight *part[NN_PART_KINDS];
    nn_weights weights;
    expect(nn_weights_create(&weights, &m->d, m->parameters, NULL), "no memory");
    nn_weights_find(&weights, true, 0, part);
    const float *bias = part[NN_PROJ_BIAS]->value.data;
    expect(memcmp(on->inside.attended.data, bias, 12 * sizeof *bias) != 0 &&
               !memcmp(off->inside.attended.data, bias, 12 * sizeof *bias),
           "more is added than the bias of Wo");
    nn_weights_free(&weights);
    drop(on);
    drop(off);
    free(r);
    mha_model_free(m);
    mha_context_free(ctx);
}

/* Each tensor by itself, of any float type and with strides. */
TEST(one_of_them_in_another_type)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = small_model(false, false);
    reading *r = read_all(m);
    outcome *all = run(ctx, m, r, 1, "all");
    mha_tensor want[NN_PUBLIC_INSIDE], one[NN_PUBLIC_INSIDE] = {{0}};
    nn_public_inside_list(want, &all->inside);
    uint16_t *memory = array((int64_t)2 * B * 3 * TOKENS * 12, sizeof *memory);
    for (int n = 0; n < NN_PUBLIC_INSIDE; n++) {
        mha_tensor t = want[n];
        mha_model_inside inside = {.attention = 1};
        int64_t count = 1;
        t.data = memory, t.type = MHA_BFLOAT16;
        for (int axis = 0; axis < t.rank; axis++) count *= t.size[axis], t.stride[axis] *= 2;
        memset(one, 0, sizeof one);
        one[n] = t;
        nn_public_inside_set(&inside, one);
        mha_model_outputs out = {.inside = &inside};
        expect(!mha_model_run(ctx, m, &out, &r->in), "%s", mha_context_error(ctx));
        bool same = true;
        for (int64_t i = 0; i < count; i++)
            same = same && memory[2 * i] == bfloat16_from((double)((float *)want[n].data)[i]);
        expect(same, "%s is another one in bfloat16", nn_public_inside_name(n));
    }
    free(memory);
    drop(all);
    free(r);
    mha_model_free(m);
    mha_context_free(ctx);
}

typedef struct refusal {
    bool pair, experts;
    void (*change)(mha_model_inside *inside);
    mha_status status;
    const char *says;
} refusal;

static void before_the_first(mha_model_inside *i) { i->attention = -1; }
static void beyond_the_last(mha_model_inside *i) { i->attention = 2; }
static void beyond_cross(mha_model_inside *i) { i->attention = 6; }
static void hidden(mha_model_inside *i) { i->hidden = i->x; }
static void short_q(mha_model_inside *i) { i->q.size[3] = 3; }
static void flat_y(mha_model_inside *i) { i->y.rank = 2; }
static void whole_scores(mha_model_inside *i) { i->scores.type = MHA_INT32; }
static void no_data(mha_model_inside *i) { i->mlp.data = NULL; }
static void shared(mha_model_inside *i) { i->mlp_read.data = i->x.data; }

TEST(wrong_tensors_are_refused)
{
    static const refusal all[] = {
        {false, false, before_the_first, MHA_BAD_ARGUMENT, "inside.attention: -1 is no attention of the model"},
        {false, false, beyond_the_last, MHA_BAD_ARGUMENT, "inside.attention: 2 is no attention of the model"},
        {true, false, beyond_cross, MHA_BAD_ARGUMENT, "inside.attention: 6 is no attention of the model"},
        {false, true, hidden, MHA_BAD_ARGUMENT, "inside.hidden: the MLP is a mixture of experts"},
        {false, false, short_q, MHA_BAD_SHAPE, "inside.q: must be (B,H,T,D) = (3,3,9,4)"},
        {false, false, flat_y, MHA_BAD_SHAPE, "inside.y: must be (B,T,M) = (3,9,12)"},
        {false, false, whole_scores, MHA_BAD_TYPE, "inside.scores: is int32, must be a float type"},
        {false, false, no_data, MHA_BAD_ARGUMENT, "inside.mlp: its data is NULL"},
        {false, false, shared, MHA_OVERLAP, "inside.x: shares memory with inside.mlp_read"},
    };
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        mha_model *m = small_model(all[n].pair, all[n].experts);
        reading *r = read_all(m);
        outcome *o = run(ctx, m, r, 0, "a right call");
        mha_model_inside inside = o->inside;
        mha_model_outputs out = {.inside = &inside};
        all[n].change(&inside);
        mha_status status = mha_model_run(ctx, m, &out, &r->in);
        expect(status == all[n].status && strcmp(mha_context_error(ctx), all[n].says) == 0, "%d, '%s' instead of '%s'",
               (int)status, mha_context_error(ctx), all[n].says);
        drop(o);
        free(r);
        mha_model_free(m);
    }
    mha_context_free(ctx);
}
