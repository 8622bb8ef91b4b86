/* Models of random descriptions: forward against the oracle, token by token, and their bits.
 *
 * Bounds. Rows, scores and logits are of the size of 1. A result in float32 passes through up to 3 blocks of each stack,
 * with about ten roundings of 2^-24 = 6e-8 in a branch, most of which cancel; norms of rows that happen to be short
 * enlarge what was rounded before them. Over 4000 descriptions the largest error of a model was 2e-7 of its largest
 * result in the median, 8e-7 in one model of 100 and 5e-6 in the worst, so FORWARD is 5e-6; the models below stay under
 * 1.1e-6. Two results in float32 may differ by twice as much. */
#include "support/contexts.h"
#include "nn/model/descriptions.h"
#include "support/harness.h"

#define FORWARD 5e-6

enum { CASES = 102, TOKENS = 9 };

typedef struct machine {
    mha_context *ctx;
    nn_model *model;
} machine;

static machine start(const model_case *c, int64_t batch, bool training, int threads)
{
    char error[240] = "", words[600];
    nn_model_options options = model_case_options(c, training);
    options.batch = batch;
    machine m = {.ctx = context_make(NULL, threads, (mha_parallel){NULL, NULL}, NULL)};
    m.model = nn_model_create(m.ctx, &c->d, c->parameters, &options, error, sizeof error);
    if (!expect(m.model != NULL, "%s %s: %s", error, mha_context_error(m.ctx),
                description_words(&c->d, words, sizeof words)))
        exit(1);
    return m;
}

static void stop(machine *m)
{
    nn_model_free(m->model);
    mha_context_free(m->ctx);
}

/* Case n of a test: descriptions take turns in having an encoder, a decoder and both; `all`: also with parts that have no
 * backward pass. */
static model_case *case_of(uint64_t seed, uint64_t n, bool padded, bool all)
{
    rng r = rng_make(seed, n);
    char text[160];
    nn_description d = (all ? description_random_all : description_random)(&r, n, (stacks)(n % STACKS));
    const char *problem = nn_description_problem(&d, text, sizeof text);
    if (!expect(!problem, "description %d: %s", (int)n, problem)) exit(1);
    return model_case_make(&d, &r, rng_between(&r, 1, 3), TOKENS, padded);
}

static double largest(const double *x, int64_t count)
{
    double most = 0;
    for (int64_t n = 0; n < count; n++)
        if (fabs(x[n]) > most) most = fabs(x[n]);
    return most;
}

/* got (rows,columns) against want, in the rows that exist; `exists` NULL: in all of them. */
static void compare(const model_case *c, uint64_t n, const char *what, const float *got, const double *want,
                    int64_t rows, int64_t columns, double bound, bool (*exists)(const model_case *, int64_t))
{
    char words[600];
    double off = 0, size = largest(want, rows * columns);
    for (int64_t i = 0; i < rows * columns; i++) {
        if (exists && !exists(c, i / columns)) continue;
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= off)) off = d;
    }
    expect(off <= bound * size, "case %d: %s are off by %.3g of %.3g; %s", (int)n, what, off, size,
           description_words(&c->d, words, sizeof words));
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static bool encoder_row_exists(const model_case *c, int64_t n)
{
    return n % c->oracle.ref.encoder.T < ref_length(&c->oracle.ref.encoder, n / c->oracle.ref.encoder.T);
}

static bool decoder_row_exists(const model_case *c, int64_t n)
{
    return n % c->oracle.ref.decoder.T < ref_length(&c->oracle.ref.decoder, n / c->oracle.ref.decoder.T);
}

/* The rows between blocks, which the oracle also has after the last block, before the final norm. */
static void compare_hidden(const model_case *c, uint64_t n, bool decoder, const float *got, const double *want)
{
    const ref_stack *s = decoder ? &c->oracle.ref.decoder : &c->oracle.ref.encoder;
    int64_t rows = c->batch.B * s->T;
    for (int64_t l = 0; l <= s->depth; l++)
        compare(c, n, decoder ? "hidden rows of the decoder" : "hidden rows of the encoder", got + l * rows * s->width,
                want + (l == s->depth ? l + 1 : l) * rows * s->width, rows, s->width, FORWARD,
                decoder ? decoder_row_exists : encoder_row_exists);
}

/* Weights of attention n lie behind those of the attentions before it: (B,H,Tq,Tk). */
static int64_t map_size(const model_case *c, nn_attention_place a)
{
    int64_t Tq = a.decoder ? c->oracle.ref.decoder.T : c->oracle.ref.encoder.T,
            Tk = a.cross ? c->oracle.ref.encoder.T : Tq;
    return c->batch.B * a.heads * Tq * Tk;
}

/* Tells the oracle to leave its weights in maps, unless that is NULL; returns how many there are. */
static int64_t place_maps(const model_case *c, double *maps)
{
    int64_t at = 0;
    for (int64_t k = 0; k < nn_description_attentions(&c->d); k++) {
        nn_attention_place a = nn_description_attention(&c->d, k);
        ref_block *block = &c->oracle.blocks[a.decoder][a.block];
        if (maps) *(a.cross ? &block->cross.maps : &block->self.maps) = maps + at;
        at += map_size(c, a);
    }
    return at;
}

static void compare_maps(const model_case *c, uint64_t n, const float *got, const double *want)
{
    for (int64_t k = 0; k < nn_description_attentions(&c->d); k++) {
        nn_attention_place a = nn_description_attention(&c->d, k);
        const ref_stack *q = a.decoder ? &c->oracle.ref.decoder : &c->oracle.ref.encoder;
        int64_t count = map_size(c, a), sequence = count / c->batch.B, Tk = sequence / (a.heads * q->T);
        double off = 0;
        for (int64_t i = 0; i < count; i++) {
            double d = fabs((double)got[i] - want[i]);
            if (i / Tk % q->T < ref_length(q, i / sequence) && !(d <= off)) off = d;
        }
        expect(off <= FORWARD, "case %d: weights of attention %d are off by %.3g", (int)n, (int)k, off);
        got += count;
        want += count;
    }
}

typedef struct wanted {
    double *out, *hidden[2], *maps;
    float *got_hidden[2], *got_maps;
} wanted;

static wanted solve(const model_case *c)
{
    const ref_stack *s[2] = {&c->oracle.ref.encoder, &c->oracle.ref.decoder};
    int64_t count = place_maps(c, NULL);
    wanted w = {.maps = array(count, sizeof(double)), .got_maps = array(count, sizeof(float))};
    w.out = array(ref_transformer_rows(&c->oracle.ref) * ref_transformer_columns(&c->oracle.ref), sizeof(double));
    for (int n = 0; n < 2; n++) {
        w.hidden[n] = array((s[n]->depth + 2) * c->batch.B * s[n]->T * s[n]->width, sizeof(double));
        w.got_hidden[n] = array((s[n]->depth + 1) * c->batch.B * s[n]->T * s[n]->width, sizeof(float));
    }
    place_maps(c, w.maps);
    ref_transformer_forward(&c->oracle.ref, w.out, s[0]->depth ? w.hidden[0] : NULL, s[1]->depth ? w.hidden[1] : NULL);
    return w;
}

static void wanted_free(wanted *w)
{
    void *all[] = {w->out, w->hidden[0], w->hidden[1], w->maps, w->got_hidden[0], w->got_hidden[1], w->got_maps};
    for (int n = 0; n < 7; n++) free(all[n]);
}

static void check_forward(uint64_t n, bool training, bool all)
{
    model_case *c = case_of(31, n, n / 3 % 2, all);
    machine m = start(c, c->batch.B + (int64_t)(n % 2), training, 2);
    wanted w = solve(c);
    mha_tensor maps[12];
    nn_maps_lay(maps, w.got_maps, &c->d, c->batch.B, c->oracle.ref.encoder.T, c->oracle.ref.decoder.T);
    nn_call call = {.maps = maps};
    if (c->d.encoder.blocks.depth) call.encoder_hidden = w.got_hidden[0];
    if (c->d.decoder.blocks.depth) call.decoder_hidden = w.got_hidden[1];
    const float *out = nn_model_forward(m.model, m.ctx, &c->batch, &call);
    expect(out != NULL, "case %d: %s", (int)n, mha_context_error(m.ctx));
    if (out) {
        compare(c, n, "results", out, w.out, ref_transformer_rows(&c->oracle.ref),
                ref_transformer_columns(&c->oracle.ref), FORWARD, model_case_row_exists);
        for (int k = 0; k < 2; k++) compare_hidden(c, n, k, w.got_hidden[k], w.hidden[k]);
        compare_maps(c, n, w.got_maps, w.maps);
    }
    wanted_free(&w);
    stop(&m);
    model_case_free(c);
}

TEST(forward_is_the_oracles)
{
    for (uint64_t n = 0; n < (uint64_t)cases_from(CASES); n++) check_forward(n, false, false);
}

TEST(forward_of_all_parts_is_the_oracles)
{
    for (uint64_t n = 0; n < (uint64_t)cases_from(2 * CASES); n++) check_forward(n, false, true);
}

TEST(forward_for_training_is_the_oracles)
{
    for (uint64_t n = 0; n < (uint64_t)cases_from(2 * CASES); n++) check_forward(n, true, n % 2);
}

/* ---- Token by token --------------------------------------------------------------------------------------------- */

/* Tokens `first` to first + T - 1 of each sequence of the decoder. */
static int32_t *cut_tokens(const int32_t *tokens, int64_t B, int64_t all, int64_t first, int64_t T)
{
    int32_t *cut = array(B * T, sizeof *cut);
    for (int64_t n = 0; tokens && n < B * T; n++) cut[n] = tokens[n / T * all + first + n % T];
    return cut;
}

/* Runs the decoder from a cache in chunks of up to `most` tokens, and gathers the logits (B*T,columns). */
static bool run_steps(const model_case *c, const machine *m, float *out, int64_t most, rng *r)
{
    int64_t B = c->batch.B, T = c->batch.decoder.T, columns = ref_transformer_columns(&c->oracle.ref);
    nn_model_cache *cache = nn_model_cache_create(m->model, m->ctx, B, T + 2, MHA_FLOAT32);
    bool ok = cache != NULL;
    if (ok && nn_description_is_pair(&c->d)) ok = nn_model_encode(m->model, m->ctx, cache, &c->batch);
    for (int64_t first = 0, next; ok && first < T; first = next) {
        int64_t count = rng_between(r, 1, most);
        next = first + count < T ? first + count : T;
        count = next - first;
        nn_batch part = c->batch;
        int32_t *tokens = cut_tokens(c->batch.decoder.tokens, B, T, first, count);
        int32_t *types = cut_tokens(c->batch.decoder.types, B, T, first, count);
        part.decoder.T = count;
        part.decoder.tokens = tokens;
        part.decoder.types = c->batch.decoder.types ? types : NULL;
        const float *logits = nn_model_step(m->model, m->ctx, cache, &part, NULL);
        ok = logits != NULL;
        for (int64_t n = 0; ok && n < B * count; n++)
            memcpy(out + (n / count * T + first + n % count) * columns, logits + n * columns,
                   (size_t)columns * sizeof *out);
        ok = ok && nn_model_cache_length(cache, 0) == next;
        free(tokens);
        free(types);
    }
    nn_model_cache_free(cache);
    return ok;
}

/* A causal decoder gives for each token what it gives for the whole sequence. */
TEST(steps_are_the_forward_pass)
{
    for (uint64_t n = 0; n < (uint64_t)cases_from(CASES); n++) {
        rng r = rng_make(35, n);
        nn_description d = description_random(&r, n, n % 2 ? ENCODER_DECODER : DECODER_ONLY);
        d.decoder.blocks.causal = true;
        d.output.pool = NN_POOL_NONE;
        model_case *c = model_case_make(&d, &r, rng_between(&r, 1, 3), TOKENS, n / 2 % 2);
        c->batch.decoder.lengths = c->oracle.ref.decoder.lengths = NULL;
        int64_t rows = ref_transformer_rows(&c->oracle.ref), columns = ref_transformer_columns(&c->oracle.ref);
        double *want = array(rows * columns, sizeof(double));
        float *got = array(rows * columns, sizeof(float));
        machine m = start(c, c->batch.B, false, 2);
        const int64_t most[] = {1, 4};
        const float *whole = nn_model_forward(m.model, m.ctx, &c->batch, NULL);
        expect(whole != NULL, "case %d: %s", (int)n, mha_context_error(m.ctx));
        for (int64_t i = 0; whole && i < rows * columns; i++) want[i] = (double)whole[i];
        for (int k = 0; whole && k < 2; k++) {
            memset(got, 0xFF, (size_t)(rows * columns) * sizeof *got);
            if (expect(run_steps(c, &m, got, most[k], &r), "case %d: %s", (int)n, mha_context_error(m.ctx)))
                compare(c, n, most[k] == 1 ? "steps of a token" : "steps of some tokens", got, want, rows, columns,
                        2 * FORWARD, NULL);
        }
        stop(&m);
        free(want);
        free(got);
        model_case_free(c);
    }
}

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

/* The results for a batch, in memory of the caller's; and the gradients, if the description trains. */
static float *results(const model_case *c, const nn_batch *batch, int threads, float *gradients)
{
    bool trains = gradients != NULL;
    const ref_stack *last = ref_last(&c->oracle.ref);
    int64_t T = last == &c->oracle.ref.encoder ? batch->encoder.T : batch->decoder.T;
    int64_t count =
        (c->oracle.ref.pool == REF_POOL_NONE ? batch->B * T : batch->B) * ref_transformer_columns(&c->oracle.ref);
    float *copy = array(count, sizeof *copy);
    machine m = start(c, batch->B, trains, threads);
    const float *out = nn_model_forward(m.model, m.ctx, batch, NULL);
    expect(out != NULL, "%s", mha_context_error(m.ctx));
    if (out) memcpy(copy, out, (size_t)count * sizeof *copy);
    if (out && trains) {
        float *dout = array(count, sizeof *dout);
        for (int64_t i = 0; i < count; i++) dout[i] = (float)(i % 17 - 8) / 8;
        expect(nn_model_backward(m.model, m.ctx, dout, gradients), "%s", mha_context_error(m.ctx));
        free(dout);
    }
    stop(&m);
    return copy;
}

TEST(bits_do_not_depend_on_threads)
{
    for (uint64_t n = 0; n < (uint64_t)cases_from(CASES / 2); n++) {
        model_case *c = case_of(36, n, n / 3 % 2, n % 2);
        float *gradients[3], *out[3];
        for (int k = 0; k < 3; k++) {
            gradients[k] = array(c->count, sizeof(float));
            out[k] = results(c, &c->batch, k + 1, gradients[k]);
        }
        for (int k = 1; k < 3; k++) {
            int64_t rows = ref_transformer_rows(&c->oracle.ref), columns = ref_transformer_columns(&c->oracle.ref);
            for (int64_t i = 0; i < rows; i++)
                expect(!model_case_row_exists(c, i) ||
                           !memcmp(out[0] + i * columns, out[k] + i * columns, (size_t)columns * sizeof(float)),
                       "case %d: row %d with %d threads", (int)n, (int)i, k + 1);
            expect(!memcmp(gradients[0], gradients[k], (size_t)c->count * sizeof(float)),
                   "case %d: the gradients with %d threads", (int)n, k + 1);
        }
        for (int k = 0; k < 3; k++) free(gradients[k]), free(out[k]);
        model_case_free(c);
    }
}

/* Sequence b of a stack, alone; cut to its length if `cut`. */
static nn_sequences one_sequence(const nn_sequences *s, const nn_input_config *in, int64_t b, bool cut)
{
    nn_sequences one = *s;
    if (s->tokens) one.tokens += b * s->T;
    if (s->types) one.types += b * s->T;
    if (s->images) one.images += b * in->channels * in->rows * in->columns;
    if (s->features) one.features += b * in->bins * 2 * s->T;
    if (s->lengths) one.lengths += b;
    if (s->lengths && cut) one.T = s->lengths[b], one.lengths = NULL;
    return one;
}

/* Sequence b of a batch with the results `all`, by itself, with or without its padding: the same bits. */
static void check_alone(const model_case *c, uint64_t n, int64_t b, const float *all, bool cut)
{
    const ref_stack *last = ref_last(&c->oracle.ref);
    bool pooled = c->oracle.ref.pool != REF_POOL_NONE;
    int64_t columns = ref_transformer_columns(&c->oracle.ref), rows = pooled ? 1 : ref_length(last, b),
            count = rows * columns;
    nn_batch one = {.B = 1};
    one.encoder = one_sequence(&c->batch.encoder, &c->d.encoder.input, b, cut);
    one.decoder = one_sequence(&c->batch.decoder, &c->d.decoder.input, b, cut);
    float *alone = results(c, &one, 1, NULL);
    char words[600];
    all += b * (pooled ? 1 : last->T) * columns;
    expect(!memcmp(all, alone, (size_t)count * sizeof *all), "case %d: sequence %d of %d alone; %s", (int)n, (int)b,
           (int)c->batch.B, description_words(&c->d, words, sizeof words));
    free(alone);
}

/* Whether a rotary embedding of the encoder is that of the longest sequence of a batch. */
static bool turns_by_length(const nn_description *d)
{
    const nn_blocks_config *b = &d->encoder.blocks;
    for (int64_t l = 0; l < b->depth; l++) {
        nn_rotary_scaling scaling = nn_blocks_attention(b, l)->rotary.scaling;
        if (scaling == NN_ROTARY_DYNAMIC || scaling == NN_ROTARY_LONG) return true;
    }
    return false;
}

static void check_each_alone(uint64_t seed, bool padded, bool cut)
{
    for (uint64_t n = 0; n < (uint64_t)cases_from(CASES / 2); n++) {
        model_case *c = case_of(seed, n, padded, n % 2);
        float *all = results(c, &c->batch, 2, NULL);
        for (int64_t b = 0; b < c->batch.B && !turns_by_length(&c->d); b++) check_alone(c, n, b, all, cut);
        free(all);
        model_case_free(c);
    }
}

TEST(bits_do_not_depend_on_the_batch)
{
    check_each_alone(37, false, false);
    check_each_alone(38, true, false);
}

TEST(padding_changes_no_bit) { check_each_alone(39, true, true); }
