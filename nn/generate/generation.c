#include "generate/generation.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sequence {
    int32_t *tokens;       /* (most) */
    int64_t count, prompt; /* of them */
    int64_t most;          /* that it may get, prompt included */
    nn_tokens encoder;
    uint64_t stream; /* of random numbers */
    nn_finish finish;
    nn_beams *beams;
    float score;
} sequence;

struct nn_generation {
    nn_generation_setup s;
    nn_decoder *decoder;
    int64_t B, N; /* sequences; rows of each */
    sequence *sequence;
    int32_t *memory;         /* tokens of all sequences */
    int32_t *encoder_memory; /* copies of what the encoder read */
    nn_marks marks;
    nn_choice choice;
    float *scores;   /* (N,V) */
    int32_t *tokens; /* that go into the next run */
    int64_t *starts; /* (rows+1) */
    int64_t *from;   /* (rows) */
    bool begun, failed;
};

/* ---- Making one ------------------------------------------------------------------------------------------------- */

/* FNV-1a of the tokens of a prompt, and of how many equal prompts come before it. */
static uint64_t stream_of(const nn_generation *g, int64_t b)
{
    const sequence *q = &g->sequence[b];
    uint64_t hash = UINT64_C(0xcbf29ce484222325), same = 0;
    for (int64_t a = 0; a < b; a++) {
        const sequence *other = &g->sequence[a];
        same += other->prompt == q->prompt && other->encoder.count == q->encoder.count &&
                !memcmp(other->tokens, q->tokens, (size_t)q->prompt * sizeof *q->tokens) &&
                (!q->encoder.count ||
                 !memcmp(other->encoder.ids, q->encoder.ids, (size_t)q->encoder.count * sizeof *q->encoder.ids));
    }
    for (int64_t n = 0; n < q->prompt; n++) hash = (hash ^ (uint32_t)q->tokens[n]) * UINT64_C(0x100000001b3);
    for (int64_t n = 0; n < q->encoder.count; n++)
        hash = (hash ^ (uint32_t)q->encoder.ids[n]) * UINT64_C(0x100000001b3);
    return (hash ^ same) * UINT64_C(0x100000001b3);
}

static bool check(const nn_generation *g, const nn_prompts *p, char *error, size_t size)
{
    const nn_decoder *d = g->decoder;
    for (int64_t b = 0; b < p->count; b++) {
        int64_t count = p->starts[b + 1] - p->starts[b];
        if (count < 1) return snprintf(error, size, "prompt %lld: has no tokens", (long long)b + 1), false;
        if (g->s.max_length && count >= g->s.max_length) {
            snprintf(error, size, "prompt %lld: has %lld tokens, and max_length is %lld; say how many new ones to make",
                     (long long)b + 1, (long long)count, (long long)g->s.max_length);
            return false;
        }
        if (count > d->capacity) {
            snprintf(error, size, "prompt %lld: has %lld tokens; the model has %lld positions", (long long)b + 1,
                     (long long)count, (long long)d->capacity);
            return false;
        }
        for (int64_t t = p->starts[b]; t < p->starts[b + 1]; t++)
            if (p->tokens[t] < 0 || p->tokens[t] >= d->vocabulary) {
                snprintf(error, size, "prompt %lld: token %d is not below %lld, the size of the vocabulary",
                         (long long)b + 1, (int)p->tokens[t], (long long)d->vocabulary);
                return false;
            }
    }
    return true;
}

static bool make_sequences(nn_generation *g, const nn_prompts *p)
{
    const nn_decoder *d = g->decoder;
    int64_t all = 0, read = p->encoder ? p->encoder_starts[p->count] : 0;
    if (!(g->sequence = calloc((size_t)p->count, sizeof *g->sequence))) return false;
    for (int64_t b = 0; b < p->count; b++) {
        sequence *q = &g->sequence[b];
        q->prompt = q->count = p->starts[b + 1] - p->starts[b];
        int64_t left = d->capacity + 1 - q->prompt; /* the last token does not go into the model */
        q->most = q->prompt + (g->s.max_new < left ? g->s.max_new : left);
        if (g->s.max_length && q->most > g->s.max_length) q->most = g->s.max_length;
        all += q->most;
    }
    g->memory = malloc((size_t)(all + 1) * sizeof *g->memory);
    g->encoder_memory = malloc((size_t)(read + 1) * sizeof *g->encoder_memory);
    if (!g->memory || !g->encoder_memory) return false;
    if (read) memcpy(g->encoder_memory, p->encoder, (size_t)read * sizeof *p->encoder);
    int32_t *at = g->memory;
    for (int64_t b = 0; b < p->count; at += g->sequence[b++].most) {
        sequence *q = &g->sequence[b];
        q->tokens = at;
        memcpy(at, p->tokens + p->starts[b], (size_t)q->prompt * sizeof *at);
        if (p->encoder)
            q->encoder =
                (nn_tokens){g->encoder_memory + p->encoder_starts[b], p->encoder_starts[b + 1] - p->encoder_starts[b]};
        q->stream = stream_of(g, b);
    }
    return true;
}

static bool make_beams(nn_generation *g)
{
    for (int64_t b = 0; g->s.beams.beams && b < g->B; b++) {
        sequence *q = &g->sequence[b];
        nn_beams_options o = g->s.beams;
        o.encoder = q->encoder;
        if (!(q->beams = nn_beams_create(&o, g->decoder->vocabulary, q->most))) return false;
        nn_beams_begin(q->beams, q->tokens, q->prompt, q->most);
    }
    return true;
}

nn_generation *nn_generation_create(const nn_generation_setup *setup, nn_decoder *decoder, const nn_prompts *prompts,
                                    char *error, size_t error_size)
{
    nn_generation *g = calloc(1, sizeof *g);
    bool good = g != NULL;
    if (!g) nn_decoder_free(decoder);
    snprintf(error, error_size, "not enough memory for a generation");
    if (g) {
        size_t V = (size_t)decoder->vocabulary, rows = (size_t)decoder->rows;
        int64_t given = prompts->starts[prompts->count] - prompts->starts[0];
        g->s = *setup;
        g->decoder = decoder;
        g->B = prompts->count;
        g->N = setup->beams.beams ? setup->beams.beams : 1;
        good = check(g, prompts, error, error_size) && make_sequences(g, prompts) && make_beams(g) &&
               nn_marks_create(&g->marks, decoder->vocabulary) &&
               (!setup->sample || nn_choice_create(&g->choice, decoder->vocabulary)) &&
               (g->scores = malloc((size_t)g->N * V * sizeof *g->scores)) &&
               (g->tokens = malloc(((size_t)given + rows) * sizeof *g->tokens)) &&
               (g->starts = malloc((rows + 1) * sizeof *g->starts)) && (g->from = malloc(rows * sizeof *g->from));
    }
    if (good) return g;
    nn_generation_free(g);
    return NULL;
}

void nn_generation_free(nn_generation *g)
{
    if (!g) return;
    for (int64_t b = 0; g->sequence && b < g->B; b++) nn_beams_free(g->sequence[b].beams);
    nn_decoder_free(g->decoder);
    nn_marks_free(&g->marks);
    nn_choice_free(&g->choice);
    free(g->sequence);
    free(g->memory);
    free(g->encoder_memory);
    free(g->scores);
    free(g->tokens);
    free(g->starts);
    free(g->from);
    free(g);
}

/* ---- What goes into a run --------------------------------------------------------------------------------------- */

static void add(nn_generation *g, int64_t *at, const int32_t *tokens, int64_t count)
{
    memcpy(g->tokens + *at, tokens, (size_t)count * sizeof *tokens);
    *at += count;
}

/* Tokens of row n of a sequence that the model has not had yet: prompts, in the first run, in row 0 alone. */
static void gather(nn_generation *g)
{
    int64_t at = 0;
    for (int64_t r = 0; r < g->decoder->rows; r++) {
        const sequence *q = &g->sequence[r / g->N];
        int64_t n = r % g->N;
        g->starts[r] = at;
        if (q->finish) continue;
        if (!g->begun) {
            if (!n) add(g, &at, q->tokens, q->prompt);
        } else if (q->beams) add(g, &at, nn_beams_next(q->beams) + n, 1);
        else add(g, &at, q->tokens + q->count - 1, 1);
    }
    g->starts[g->decoder->rows] = at;
}

/* Rows of the cache follow their beams. Before the second run, that is the row of the prompt for all. */
static bool reorder(nn_generation *g, mha_context *ctx)
{
    if (!g->s.beams.beams || !g->begun) return true;
    for (int64_t r = 0; r < g->decoder->rows; r++) {
        const sequence *q = &g->sequence[r / g->N];
        int64_t first = r / g->N * g->N;
        g->from[r] = q->finish ? r : first + (q->count == q->prompt + 1 ? 0 : nn_beams_from(q->beams)[r % g->N]);
    }
    return g->decoder->reorder(g->decoder, ctx, g->from);
}

/* ---- What comes out --------------------------------------------------------------------------------------------- */

static void cancel(nn_generation *g)
{
    for (int64_t b = 0; b < g->B; b++)
        if (!g->sequence[b].finish) g->sequence[b].finish = NN_FINISH_CANCELLED;
}

static nn_finish finish_of(const nn_generation *g, const sequence *q, int64_t count)
{
    if (nn_tokens_have(g->s.rules.end, q->tokens[count - 1])) return NN_FINISH_END;
    return count >= q->most ? NN_FINISH_LENGTH : NN_FINISH_NONE;
}

/* Shows a token to the watcher. */
static nn_verdict show(nn_generation *g, int64_t b, int64_t place, nn_finish finish)
{
    return g->s.watch ? g->s.watch(g->s.user, b, g->sequence[b].tokens[place], finish) : NN_GO_ON;
}

static void take_token(nn_generation *g, int64_t b, int32_t token)
{
    sequence *q = &g->sequence[b];
    q->tokens[q->count++] = token;
    q->finish = finish_of(g, q, q->count);
    nn_verdict verdict = show(g, b, q->count - 1, q->finish);
    if (verdict == NN_STOP && !q->finish) q->finish = NN_FINISH_STOPPED;
    if (verdict == NN_CANCEL) cancel(g);
}

/* The best sequence of a search that has ended. */
static void take_best(nn_generation *g, int64_t b)
{
    sequence *q = &g->sequence[b];
    int64_t count = 0;
    const int32_t *best = nn_beams_best(q->beams, 0, &count, &q->score);
    if (!best) best = nn_beams_running(q->beams, &count); /* of beams that all have come to nothing */
    memcpy(q->tokens, best, (size_t)count * sizeof *best);
    q->count = count;
    q->finish = finish_of(g, q, count);
    if (!q->finish) q->finish = NN_FINISH_LENGTH;
    for (int64_t t = q->prompt; t < count; t++)
        if (show(g, b, t, t == count - 1 ? q->finish : NN_FINISH_NONE) == NN_CANCEL) {
            cancel(g);
            return;
        }
}

static bool choose(nn_generation *g, int64_t b, const float *logits, const char **why)
{
    sequence *q = &g->sequence[b];
    int64_t V = g->decoder->vocabulary;
    nn_history h = {q->tokens, q->count, q->prompt, q->encoder};
    nn_rules rules = g->s.rules;
    rules.max_length = q->most;
    if (!nn_scores_are_good(logits, V, why)) return false;
    if (nn_rules_matter(&rules, &h)) {
        memcpy(g->scores, logits, (size_t)V * sizeof *logits);
        nn_rules_apply(&rules, g->scores, V, &h, &g->marks);
        logits = g->scores;
        if (!nn_scores_are_good(logits, V, why)) return false;
    }
    nn_choice_options o = g->s.choice;
    o.stream = q->stream;
    take_token(g, b,
               g->s.sample ? nn_choice_draw(&g->choice, logits, &o, (uint32_t)(q->count - q->prompt))
                           : nn_choice_largest(logits, V));
    return true;
}

static bool search(nn_generation *g, int64_t b, const float *logits, const char **why)
{
    sequence *q = &g->sequence[b];
    int64_t rows = g->begun ? g->N : 1;
    nn_rules rules = g->s.rules;
    rules.max_length = q->most;
    memcpy(g->scores, logits, (size_t)(rows * g->decoder->vocabulary) * sizeof *logits);
    if (!nn_beams_step(q->beams, g->scores, !g->begun, &rules, &g->marks, why)) return false;
    q->count++; /* of the running beams */
    if (nn_beams_ended(q->beams)) take_best(g, b);
    return true;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------ */

bool nn_generation_finished(const nn_generation *g)
{
    for (int64_t b = 0; b < g->B; b++)
        if (!g->sequence[b].finish) return false;
    return true;
}

static bool fail(nn_generation *g, mha_context *ctx, int64_t b, const char *why)
{
    char text[160];
    g->failed = true;
    snprintf(text, sizeof text, "sequence %lld: %s", (long long)b + 1, why);
    mha_context_fail(ctx, MHA_BAD_ARGUMENT, text);
    return false;
}

bool nn_generation_step(nn_generation *g, mha_context *ctx)
{
    const char *why = "";
    if (nn_generation_finished(g)) return true;
    if (g->failed) {
        mha_context_fail(ctx, MHA_BAD_ARGUMENT, "the generation has failed before");
        return false;
    }
    g->failed = true; /* until this step is over */
    if (!reorder(g, ctx)) return false;
    gather(g);
    const float *logits = g->decoder->run(g->decoder, ctx, g->tokens, g->starts);
    if (!logits) return false;
    for (int64_t b = 0; b < g->B; b++) {
        const float *mine = logits + b * g->N * g->decoder->vocabulary;
        if (g->sequence[b].finish) continue;
        if (!(g->s.beams.beams ? search(g, b, mine, &why) : choose(g, b, mine, &why))) return fail(g, ctx, b, why);
    }
    g->begun = true;
    g->failed = false;
    return true;
}

nn_generated nn_generation_get(const nn_generation *g, int64_t b)
{
    const sequence *q = &g->sequence[b];
    nn_generated all = {q->tokens, q->count, q->prompt, q->finish, q->score};
    if (q->beams && (!q->finish || q->finish == NN_FINISH_CANCELLED))
        all.tokens = nn_beams_running(q->beams, &all.count);
    return all;
}
