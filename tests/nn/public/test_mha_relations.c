/* Relations between words: a previous-token head finds the previous word, and all heads of a random model have the hits that
 * plain loops over the maps of mha_model_run give; wrong use is refused. */
#include "planted.h"
#include "support/contexts.h"
#include <mha_text.h>

enum { SEQUENCES = 3, ROOM = 200 };

typedef struct sentences {
    int32_t tokens[ROOM], words[ROOM];
    int64_t starts[SEQUENCES + 1];
    mha_link links[ROOM];
    int64_t links_count;
    mha_text of;
} sentences;

/* Sentences of 8, 12 and 12 tokens. The first token is no word, and every third word has two tokens. */
static void make_sentences(sentences *s, int32_t vocabulary)
{
    static const int64_t lengths[SEQUENCES] = {8, 12, 12};
    rng r = rng_make(3, 9);
    *s = (sentences){0};
    for (int64_t b = 0; b < SEQUENCES; b++) {
        int32_t word = -1;
        for (int64_t i = 0; i < lengths[b]; i++) {
            int64_t at = s->starts[b] + i;
            s->tokens[at] = (int32_t)(rng_uniform(&r) * vocabulary);
            if (i && (word < 0 || word % 3 || s->words[at - 1] != word || (i > 1 && s->words[at - 2] == word))) word++;
            s->words[at] = i ? word : -1;
        }
        s->starts[b + 1] = s->starts[b] + lengths[b];
        for (int32_t w = 1; w <= word; w++) {
            s->links[s->links_count++] = (mha_link){b, w, w - 1, 0};
            if (w > 2) s->links[s->links_count++] = (mha_link){b, w - 3, w, 1};
        }
    }
    s->of = (mha_text){.count = SEQUENCES, .tokens = s->tokens, .starts = s->starts};
}

static mha_relations *measure(mha_context *ctx, mha_model *m, const sentences *s)
{
    mha_relations *r;
    if (!expect(!mha_relations_make(ctx, &r, m, &s->of, s->words, s->links, s->links_count, 2), "%s",
                mha_context_error(ctx)))
        exit(1);
    return r;
}

static mha_relation get(mha_context *ctx, const mha_relations *r, int64_t relation, bool back)
{
    mha_relation one = {.size = sizeof one};
    expect(!mha_relation_get(ctx, r, relation, back, &one), "%s", mha_context_error(ctx));
    return one;
}

/* In a causal model: links to later words do not count; every token is a word. */
TEST(a_previous_token_head_finds_the_previous_word)
{
    sentences s;
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = planted_model();
    make_sentences(&s, PLANTED_V);
    s.links_count = 0;
    for (int64_t b = 0; b < SEQUENCES; b++)
        for (int64_t i = s.starts[b]; i < s.starts[b + 1]; i++) {
            s.words[i] = (int32_t)(i - s.starts[b]);
            if (s.words[i]) s.links[s.links_count++] = (mha_link){b, s.words[i], s.words[i] - 1, 0};
        }
    mha_relations *r = measure(ctx, m, &s);
    mha_relation one = get(ctx, r, 0, false), back = get(ctx, r, 0, true), none = get(ctx, r, 1, false);
    expect(one.links == 29 && one.best == 0 && one.hits == 29 && one.offset == -1 && one.offset_hits == 29,
           "%d links, head %d, %d hits, offset %d", (int)one.links, (int)one.best, (int)one.hits, (int)one.offset);
    expect(back.links == 0 && back.hits == 0 && none.links == 0, "links to what is not visible");
    expect(mha_relation_hits(r, 0, false, 1) == SEQUENCES, "the first token is the previous one %d times",
           (int)mha_relation_hits(r, 0, false, 1));
    mha_relations_free(r);
    mha_model_free(m);
    mha_context_free(ctx);
}

static mha_model *random_encoder(void)
{
    char error[200] = "";
    nn_description d = {.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS};
    rng r = rng_make(2, 6);
    d.encoder.input.vocabulary = 40;
    d.encoder.input.position_kind = NN_POSITIONS_LEARNED;
    d.encoder.input.positions = 20;
    d.encoder.blocks.width = 24, d.encoder.blocks.depth = 2, d.encoder.blocks.heads = 3, d.encoder.blocks.mlp = 32;
    d.output = (nn_output_config){.classes = 40, .scale = 1};
    int64_t count = nn_model_count(&d, error, sizeof error);
    if (!expect(count > 0, "%s", error)) exit(1);
    mha_model *m = calloc(1, sizeof *m);
    *m = (mha_model){.d = d, .count = count, .parameters = malloc((size_t)count * sizeof(float))};
    for (int64_t n = 0; n < count; n++) m->parameters[n] = (float)rng_normal(&r) * 0.4f;
    return m;
}

/* Whether the largest weight of word `from` falls on word `to`, in plain loops over words. */
static bool hits(const float *map, int64_t T, const int32_t *words, int64_t from, int64_t to)
{
    double best = -1;
    int64_t found = -1;
    for (int32_t w = 0; w < T; w++) {
        double sum = 0;
        bool there = false;
        for (int64_t i = 0; i < T; i++)
            for (int64_t j = 0; j < T; j++)
                if (words[i] == from && words[j] == w) sum += (double)map[i * T + j], there = true;
        if (there && w != from && sum > best) best = sum, found = w;
    }
    return found == to;
}

TEST(hits_are_those_of_the_maps)
{
    enum { H = 3, T = 12 };
    static float numbers[2 * H * T * T];
    sentences s;
    int64_t want[2][2][6] = {{{0}}}, links[2] = {0};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = random_encoder();
    make_sentences(&s, 40);
    for (int64_t n = 0; n < s.links_count; n++) {
        const mha_link *l = &s.links[n];
        int64_t length = s.starts[l->sequence + 1] - s.starts[l->sequence];
        const int32_t *words = s.words + s.starts[l->sequence];
        mha_tensor maps[2];
        mha_model_inputs in = {.tokens = mha_tensor_2d(s.tokens + s.starts[l->sequence], MHA_INT32, 1, length)};
        mha_model_outputs out = {.maps = maps};
        nn_maps_lay(maps, numbers, &m->d, 1, length, 0);
        expect(!mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx));
        links[l->relation]++;
        for (int h = 0; h < 6; h++) {
            const float *map = (const float *)maps[h / H].data + h % H * length * length;
            want[l->relation][0][h] += hits(map, length, words, l->from, l->to);
            want[l->relation][1][h] += hits(map, length, words, l->to, l->from);
        }
    }
    mha_relations *r = measure(ctx, m, &s);
    for (int n = 0; n < 4; n++) {
        mha_relation one = get(ctx, r, n / 2, n % 2);
        expect(one.links == links[n / 2], "%d links", (int)one.links);
        for (int h = 0; h < 6; h++) {
            int64_t got = mha_relation_hits(r, n / 2, n % 2, h);
            expect(got == want[n / 2][n % 2][h], "relation %d, head %d: %d hits, not %d", n, h, (int)got,
                   (int)want[n / 2][n % 2][h]);
            expect(got <= one.hits, "head %d is better than the best", h);
        }
    }
    expect(get(ctx, r, 0, false).offset == -1 && get(ctx, r, 1, false).offset == 3 && get(ctx, r, 1, true).offset == -3,
           "other offsets");
    expect(mha_relation_hits(r, 2, false, 0) == -1 && mha_relation_hits(r, 0, false, 6) == -1, "there is no such head");
    mha_relations_free(r);
    mha_model_free(m);
    mha_context_free(ctx);
}

TEST(wrong_use_is_refused)
{
    sentences s;
    mha_relations *r = NULL;
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = random_encoder();
    make_sentences(&s, 40);
    mha_link before = s.links[1];
    const mha_link wrong[] = {{SEQUENCES, 0, 1, 0}, {0, -1, 1, 0}, {0, 0, 1, 2}, {-1, 0, 1, 0}};
    for (int n = 0; n < 4; n++) {
        s.links[1] = wrong[n];
        expect(mha_relations_make(ctx, &r, m, &s.of, s.words, s.links, s.links_count, 2) == MHA_BAD_ARGUMENT && !r,
               "link %d", n);
    }
    s.links[1] = before;
    s.words[4] = -2;
    expect(mha_relations_make(ctx, &r, m, &s.of, s.words, s.links, s.links_count, 2) == MHA_BAD_ARGUMENT,
           "a word of -2");
    s.words[4] = 1;
    expect(mha_relations_make(ctx, &r, m, &s.of, NULL, s.links, s.links_count, 2) == MHA_BAD_ARGUMENT, "no words");
    expect(mha_relations_make(ctx, &r, m, &s.of, s.words, s.links, 0, 2) == MHA_BAD_ARGUMENT, "no links");
    int64_t second = s.starts[1];
    s.starts[1] = 0;
    expect(mha_relations_make(ctx, &r, m, &s.of, s.words, s.links, s.links_count, 2) == MHA_BAD_ARGUMENT && !r &&
               strstr(mha_context_error(ctx), "sequence 0 is empty"),
           "%s", mha_context_error(ctx));
    s.starts[1] = second;
    s.tokens[3] = 40;
    expect(mha_relations_make(ctx, &r, m, &s.of, s.words, s.links, s.links_count, 2) == MHA_BAD_ARGUMENT && !r,
           "a token that is none");
    mha_relations_free(NULL);
    mha_model_free(m);
    mha_context_free(ctx);
}
