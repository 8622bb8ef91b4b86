/* The layer and its cache in memory of a GPU, beside the CPU: parameters, forward, backward, lengths, ragged batches, caches,
 * graphs, refusals. Where there is no GPU, every test says why it did not run. */
#include "cuda/both.h"

#include <mha_ops.h>

static const mha_tensor none = MHA_NO_TENSOR;

/* ---- A layer on both sides -------------------------------------------------------------------------------------- */

typedef struct layers {
    mha_layer *cpu, *gpu;
    int64_t count; /* of parameters */
} layers;

static bool layers_make(layers *l, both *c, const mha_layer_options *options)
{
    *l = (layers){NULL, NULL, 0};
    if (!both_fine(c->cpu, mha_layer_parameter_count(c->cpu, &l->count, options), "count")) return false;
    if (!both_fine(c->cpu, mha_layer_create(c->cpu, &l->cpu, options, NULL), "create")) return false;
    if (!both_fine(c->gpu, mha_layer_create(c->gpu, &l->gpu, options, NULL), "create")) return false;
    both_fine(c->cpu, mha_layer_initialize(c->cpu, l->cpu, 7), "initialize");
    both_fine(c->gpu, mha_layer_initialize(c->gpu, l->gpu, 7), "initialize");
    double off = numbers_distance(mha_layer_view(l->cpu, NULL).q_weight.data,
                                  mha_layer_view(l->gpu, NULL).q_weight.data, l->count);
    return expect(off == 0, "first parameters differ by %g", off);
}

static void layers_free(layers *l)
{
    mha_layer_free(l->cpu);
    mha_layer_free(l->gpu);
}

typedef struct kind {
    const char *name;
    mha_layer_options options;
    double bound;
} kind;

enum { KINDS = 7 };

static kind kind_of(int n)
{
    static const char *const names[KINDS] = {"plain",          "bfloat16",       "rotary and norm", "norm over heads",
                                             "gates and keys", "wide, bfloat16", "no projection"};
    kind k = {names[n], MHA_LAYER_DEFAULTS, 2e-4};
    mha_layer_options *o = &k.options;
    o->width = 96, o->heads = 6, o->causal = n % 2;
    if (n == 1 || n == 5) o->compute = MHA_BFLOAT16, k.bound = 4e-2;
    if (n == 2) o->kv_heads = 2, o->rotary_base = 10000, o->norm_epsilon = 1e-5f, o->rotary_width = 12;
    if (n == 3)
        o->norm_epsilon = 1e-5f, o->norm = MHA_NORM_LAYER, o->norm_span = MHA_NORM_ALL_HEADS, o->norm_bias = true;
    if (n == 4) o->gates = o->bias_kv = o->zero_kv = o->sinks = true, o->softcap = 5;
    if (n == 5) o->width = 256, o->heads = 4, o->kv_heads = 2, o->rotary_base = 10000, o->rotary_interleaved = true;
    if (n == 6) o->out_projection = o->out_bias = false, o->value_head_width = 24;
    return k;
}

/* The results and gradients of a call on both sides. */
typedef struct results {
    numbers x, out, dout, dx, parameters;
} results;

static results results_make(int64_t rows, const mha_layer_options *o, int64_t count, rng *r)
{
    return (results){numbers_make(rows * o->width, r), numbers_make(rows * o->out_width, NULL),
                     numbers_make(rows * o->out_width, r), numbers_make(rows * o->width, NULL),
                     numbers_make(count, NULL)};
}

static void results_free(results *s)
{
    numbers *all[] = {&s->x, &s->out, &s->dout, &s->dx, &s->parameters};
    for (int n = 0; n < 5; n++) numbers_free(all[n]);
}

/* Forward, and backward with the tape, on one side. */
static bool train(mha_context *ctx, mha_layer *layer, results *s, int64_t B, int64_t T, const mha_attention_options *o)
{
    bool device = strcmp(mha_context_device(ctx), "cpu") != 0;
    mha_tape *tape = NULL;
    mha_layer_inputs inputs = {.query = numbers_view(&s->x, device, B, T)};
    mha_layer_gradients g = {.query = numbers_view(&s->dx, device, B, T),
                             .parameters = device ? s->parameters.device : s->parameters.host};
    bool good =
        both_fine(ctx, mha_tape_create(ctx, &tape), "tape") &&
        both_fine(ctx, mha_layer_forward(ctx, layer, numbers_view(&s->out, device, B, T), NULL, &inputs, o, tape),
                  "forward") &&
        both_fine(ctx, mha_layer_backward(ctx, layer, &g, numbers_view(&s->dout, device, B, T), tape), "backward");
    mha_tape_free(tape);
    return good;
}

static void check_all(const results *s, double bound, const char *name)
{
    numbers_check(&s->out, bound, "out", name);
    numbers_check(&s->dx, bound, "the gradient of x", name);
    numbers_check(&s->parameters, bound, "the gradient of parameters", name);
}

TEST(layers)
{
    both c;
    rng r = rng_make(seed(), 1);
    for (int n = 0; n < KINDS; n++) {
        enum { B = 3, T = 37 };
        kind k = kind_of(n);
        layers l;
        if (!both_start(&c, NULL)) return;
        if (layers_make(&l, &c, &k.options)) {
            results s = results_make(B * T, mha_layer_shape(l.cpu), l.count, &r);
            if (train(c.cpu, l.cpu, &s, B, T, NULL) && train(c.gpu, l.gpu, &s, B, T, NULL))
                check_all(&s, k.bound, k.name);
            results_free(&s);
        }
        layers_free(&l);
        both_stop(&c);
    }
}

/* Frozen layers and layers that are not give the same bits, and so does a second call. */
TEST(frozen_layers)
{
    both c;
    rng r = rng_make(seed(), 2);
    for (int n = 0; n < KINDS; n++) {
        enum { B = 2, T = 19 };
        kind k = kind_of(n);
        layers l;
        if (!both_start(&c, NULL)) return;
        if (layers_make(&l, &c, &k.options)) {
            int64_t N = mha_layer_shape(l.gpu)->out_width;
            numbers x = numbers_make(B * T * k.options.width, &r), y = numbers_make(B * T * N, NULL);
            mha_layer_inputs inputs = {.query = numbers_view(&x, true, B, T)};
            for (int round = 0; round < 3; round++) {
                mha_layer_freeze(l.gpu, round > 0);
                gpu_poison(y.device, (size_t)y.count * sizeof(float));
                both_fine(c.gpu,
                          mha_layer_forward(c.gpu, l.gpu, numbers_view(&y, true, B, T), NULL, &inputs, NULL, NULL),
                          k.name);
                if (!round) gpu_read(y.host, y.device, (size_t)y.count * sizeof(float));
                else expect(numbers_distance(y.host, y.device, y.count) == 0, "%s: other bits when frozen", k.name);
            }
            numbers_free(&x);
            numbers_free(&y);
        }
        layers_free(&l);
        both_stop(&c);
    }
}

/* Lengths lie in the memory of the GPU, and rows of padding, which are NaN, reach nothing. */
TEST(padded_batches)
{
    enum { B = 3, T = 20 };
    static const int64_t lengths[B] = {20, 7, 0};
    both c;
    rng r = rng_make(seed(), 3);
    for (int n = 0; n < KINDS; n++) {
        kind k = kind_of(n);
        layers l;
        if (!both_start(&c, NULL)) return;
        if (layers_make(&l, &c, &k.options)) {
            results s = results_make(B * T, mha_layer_shape(l.cpu), l.count, &r);
            for (int64_t b = 0; b < B; b++)
                for (int64_t i = lengths[b] * k.options.width; i < T * k.options.width; i++)
                    s.x.host[b * T * k.options.width + i] = NAN;
            gpu_write(s.x.device, s.x.host, (size_t)s.x.count * sizeof(float));
            void *there = both_upload(lengths, B);
            mha_attention_options here = mha_layer_attention(l.cpu), o = here;
            here.query_lengths = here.key_lengths = mha_tensor_1d(lengths, MHA_INT64, B);
            o.query_lengths = o.key_lengths = mha_tensor_1d(there, MHA_INT64, B);
            if (train(c.cpu, l.cpu, &s, B, T, &here) && train(c.gpu, l.gpu, &s, B, T, &o))
                check_all(&s, k.bound, k.name);
            gpu_free(there);
            results_free(&s);
        }
        layers_free(&l);
        both_stop(&c);
    }
}

/* Starts lie in the memory of the GPU. Rows of no sequence, which are NaN, reach nothing; their results are zeros. */
TEST(ragged_batches)
{
    enum { B = 4, T = 50 };
    static const int64_t starts[B + 1] = {3, 20, 20, 33, 45};
    both c;
    rng r = rng_make(seed(), 4);
    for (int n = 0; n < KINDS; n++) {
        kind k = kind_of(n);
        layers l;
        if (!both_start(&c, NULL)) return;
        if (layers_make(&l, &c, &k.options)) {
            results s = results_make(T, mha_layer_shape(l.cpu), l.count, &r);
            for (int64_t i = 0; i < s.x.count; i++)
                if (i / k.options.width < starts[0] || i / k.options.width >= starts[B]) s.x.host[i] = NAN;
            gpu_write(s.x.device, s.x.host, (size_t)s.x.count * sizeof(float));
            void *there = both_upload(starts, B + 1);
            mha_attention_options here = mha_layer_attention(l.cpu), o = here;
            here.query_starts = here.key_starts = mha_tensor_1d(starts, MHA_INT64, B + 1);
            o.query_starts = o.key_starts = mha_tensor_1d(there, MHA_INT64, B + 1);
            gpu_poison(s.dx.device, (size_t)s.dx.count * sizeof(float));
            if (train(c.cpu, l.cpu, &s, 1, T, &here) && train(c.gpu, l.gpu, &s, 1, T, &o))
                check_all(&s, k.bound, k.name);
            gpu_free(there);
            results_free(&s);
        }
        layers_free(&l);
        both_stop(&c);
    }
}

/* ---- Caches ----------------------------------------------------------------------------------------------------- */

/* One step on both sides, whose results agree. With starts, x has one row of T tokens. */
static void step(both *c, mha_cache *const cache[2], const layers *l, int64_t B, int64_t T, mha_tensor starts, rng *r,
                 const kind *k)
{
    numbers x = numbers_make(B * T * k->options.width, r),
            y = numbers_make(B * T * mha_layer_shape(l->cpu)->out_width, NULL);
    mha_tensor xs[2] = {numbers_view(&x, false, B, T), numbers_view(&x, true, B, T)},
               ys[2] = {numbers_view(&y, false, B, T), numbers_view(&y, true, B, T)};
    mha_attention_options o = mha_layer_attention(l->cpu);
    o.query_starts = starts;
    if (both_fine(c->cpu, mha_cache_step(c->cpu, cache[0], l->cpu, ys[0], NULL, xs[0], &o), k->name) &&
        both_fine(c->gpu, mha_cache_step(c->gpu, cache[1], l->gpu, ys[1], NULL, xs[1], &o), k->name))
        numbers_check(&y, k->bound, "out of a step", k->name);
    numbers_free(&x);
    numbers_free(&y);
}

/* A prompt, tokens, rows of unlike lengths, rows that change places, a second cache, rows that get unlike numbers of
 * tokens: the host reads their starts. */
TEST(caches)
{
    enum { B = 3, CAPACITY = 40 };
    static const int64_t from[B] = {2, 0, 1}, twice[B] = {1, 1, 0}, starts[B + 1] = {0, 5, 5, 12};
    both c;
    rng r = rng_make(seed(), 5);
    for (int n = 0; n < KINDS; n++) {
        kind k = kind_of(n);
        layers l;
        mha_cache *cache[2] = {NULL, NULL}, *fork[2] = {NULL, NULL};
        mha_context *ctx[2];
        k.options.causal = true;
        if (!both_start(&c, NULL)) return;
        ctx[0] = c.cpu, ctx[1] = c.gpu;
        bool good = layers_make(&l, &c, &k.options);
        mha_layer_freeze(l.gpu, n % 2);
        for (int side = 0; good && side < 2; side++)
            good = both_fine(
                ctx[side],
                mha_cache_create(ctx[side], &cache[side], side ? l.gpu : l.cpu, B, CAPACITY, k.options.compute),
                "cache");
        if (good) {
            step(&c, cache, &l, B, 9, none, &r, &k);
            step(&c, cache, &l, B, 1, none, &r, &k);
            for (int side = 0; side < 2; side++) {
                both_fine(ctx[side], mha_cache_truncate(ctx[side], cache[side], 1, 4), "truncate");
                both_fine(ctx[side], mha_cache_reorder(ctx[side], cache[side], from), "reorder");
            }
            step(&c, cache, &l, B, 2, none, &r, &k);
            for (int side = 0; side < 2; side++) {
                both_fine(ctx[side], mha_cache_fork(ctx[side], &fork[side], cache[side]), "fork");
                both_fine(ctx[side], mha_cache_reorder(ctx[side], cache[side], twice), "reorder");
            }
            step(&c, cache, &l, B, 1, none, &r, &k);
            step(&c, fork, &l, B, 3, none, &r, &k);
            step(&c, fork, &l, 1, starts[B], mha_tensor_1d(starts, MHA_INT64, B + 1), &r, &k);
            step(&c, fork, &l, B, 1, none, &r, &k);
        }
        for (int side = 0; side < 2; side++) mha_cache_free(cache[side]), mha_cache_free(fork[side]);
        layers_free(&l);
        both_stop(&c);
    }
}

/* ---- Graphs, and what is refused -------------------------------------------------------------------------------- */

/* The first call of a frozen layer is captured: what it copies once is there for the next call, which runs before the graph. */
TEST(the_first_call_is_captured)
{
    enum { B = 2, T = 24 };
    both c;
    char why[100];
    rng r = rng_make(seed(), 8);
    if (!gpu_open(why, sizeof why)) {
        not_given(why);
        return;
    }
    for (int n = 0; n < KINDS; n++) {
        kind k = kind_of(n);
        layers l;
        void *stream = gpu_stream_make();
        if (!both_start(&c, stream)) return;
        if (layers_make(&l, &c, &k.options)) {
            numbers x = numbers_make(B * T * k.options.width, &r),
                    y = numbers_make(B * T * mha_layer_shape(l.gpu)->out_width, NULL);
            mha_layer_inputs there = {.query = numbers_view(&x, true, B, T)},
                             here = {.query = numbers_view(&x, false, B, T)};
            mha_tensor out = numbers_view(&y, true, B, T);
            mha_layer_freeze(l.gpu, true);
            gpu_capture_begin(stream);
            both_fine(c.gpu, mha_layer_forward(c.gpu, l.gpu, out, NULL, &there, NULL, NULL), k.name);
            void *graph = gpu_capture_end(stream);
            mha_context_trim(c.gpu); /* leaves what the graph needs */
            both_fine(c.cpu, mha_layer_forward(c.cpu, l.cpu, numbers_view(&y, false, B, T), NULL, &here, NULL, NULL),
                      k.name);
            for (int round = 0; round < 3; round++) {
                gpu_poison(y.device, (size_t)y.count * sizeof(float));
                if (round == 1) gpu_replay(graph, stream);
                else both_fine(c.gpu, mha_layer_forward(c.gpu, l.gpu, out, NULL, &there, NULL, NULL), k.name);
                gpu_wait();
                numbers_check(&y, k.bound, round == 1 ? "the graph's result" : "the result", k.name);
            }
            gpu_graph_free(graph);
            numbers_free(&x);
            numbers_free(&y);
        }
        layers_free(&l);
        both_stop(&c);
        gpu_stream_free(stream);
    }
}

/* A training step as a graph, on new inputs. Scratch, room and tape have their size by then. */
TEST(graphs)
{
    enum { B = 2, T = 24 };
    void *stream;
    both c;
    rng r = rng_make(seed(), 6);
    for (int n = 0; n < KINDS; n++) {
        kind k = kind_of(n);
        layers l;
        char why[100];
        if (!gpu_open(why, sizeof why)) {
            not_given(why);
            return;
        }
        stream = gpu_stream_make();
        if (!both_start(&c, stream)) return;
        if (layers_make(&l, &c, &k.options)) {
            mha_tape *tape = NULL;
            results s = results_make(B * T, mha_layer_shape(l.cpu), l.count, &r);
            mha_layer_inputs inputs = {.query = numbers_view(&s.x, true, B, T)};
            mha_layer_gradients g = {.query = numbers_view(&s.dx, true, B, T), .parameters = s.parameters.device};
            void *graph = NULL;
            both_fine(c.gpu, mha_tape_create(c.gpu, &tape), "tape");
            for (int round = 0; round < 2; round++) {
                if (round) gpu_capture_begin(stream);
                both_fine(c.gpu,
                          mha_layer_forward(c.gpu, l.gpu, numbers_view(&s.out, true, B, T), NULL, &inputs, NULL, tape),
                          "forward");
                both_fine(c.gpu, mha_layer_backward(c.gpu, l.gpu, &g, numbers_view(&s.dout, true, B, T), tape),
                          "backward");
                if (round) graph = gpu_capture_end(stream);
            }
            gpu_wait();
            for (int64_t i = 0; i < s.x.count; i++) s.x.host[i] = (float)(2 * rng_uniform(&r) - 1);
            gpu_write(s.x.device, s.x.host, (size_t)s.x.count * sizeof(float));
            gpu_poison(s.out.device, (size_t)s.out.count * sizeof(float));
            gpu_replay(graph, stream);
            gpu_wait();
            if (train(c.cpu, l.cpu, &s, B, T, NULL)) check_all(&s, k.bound, k.name);
            gpu_graph_free(graph);
            mha_tape_free(tape);
            results_free(&s);
        }
        layers_free(&l);
        both_stop(&c);
        gpu_stream_free(stream);
    }
}

static void refused(mha_context *ctx, mha_status status, mha_status want, const char *text)
{
    expect(status == want && strstr(mha_context_error(ctx), text), "%s: '%s', not %s: '%s'", mha_status_name(status),
           mha_context_error(ctx), mha_status_name(want), text);
}

/* A cache reads starts in memory of the host. */
static void refused_starts(both *c, const layers *l, mha_tensor x, mha_tensor y)
{
    static const int64_t starts[2] = {0, 4};
    void *there = both_upload(starts, 2);
    mha_cache *cache = NULL;
    mha_attention_options o = mha_layer_attention(l->gpu);
    o.query_starts = mha_tensor_1d(there, MHA_INT64, 2);
    both_fine(c->gpu, mha_cache_create(c->gpu, &cache, l->gpu, 1, 8, MHA_FLOAT32), "cache");
    refused(c->gpu, mha_cache_step(c->gpu, cache, l->gpu, y, NULL, x, &o), MHA_BAD_ARGUMENT,
            "query_starts: lies in memory of cuda");
    refused(c->gpu, mha_cache_append_ragged(c->gpu, cache, l->gpu, x, none, o.query_starts), MHA_BAD_ARGUMENT,
            "starts: lies in memory of cuda");
    expect(mha_cache_length(cache, 0) == 0, "a refused step changed the cache");
    mha_cache_free(cache);
    gpu_free(there);
}

TEST(memory_of_the_wrong_side)
{
    enum { T = 4 };
    both c;
    rng r = rng_make(seed(), 7);
    kind k = kind_of(0);
    layers l;
    if (!both_start(&c, NULL)) return;
    if (layers_make(&l, &c, &k.options)) {
        numbers x = numbers_make(T * k.options.width, &r), y = numbers_make(T * k.options.width, NULL);
        mha_layer_inputs host = {.query = numbers_view(&x, false, 1, T)},
                         device = {.query = numbers_view(&x, true, 1, T)};
        mha_layer *over = NULL;
        refused(c.gpu, mha_layer_forward(c.gpu, l.gpu, numbers_view(&y, true, 1, T), NULL, &host, NULL, NULL),
                MHA_BAD_ARGUMENT, "query: data is memory of the host");
        refused(c.gpu, mha_layer_forward(c.gpu, l.gpu, numbers_view(&y, false, 1, T), NULL, &device, NULL, NULL),
                MHA_BAD_ARGUMENT, "out: data is memory of the host");
        refused(c.gpu, mha_layer_forward(c.gpu, l.cpu, numbers_view(&y, true, 1, T), NULL, &device, NULL, NULL),
                MHA_BAD_ARGUMENT, "layer: was made on the device cpu, the context is on cuda");
        refused(c.cpu, mha_layer_forward(c.cpu, l.gpu, numbers_view(&y, false, 1, T), NULL, &host, NULL, NULL),
                MHA_BAD_ARGUMENT, "layer: was made on the device cuda, the context is on cpu");
        refused(c.gpu, mha_layer_create(c.gpu, &over, &k.options, x.host), MHA_BAD_ARGUMENT,
                "parameters: data is memory of the host");
        refused(c.gpu, mha_tensor_copy(c.gpu, numbers_view(&y, true, 1, T), numbers_view(&x, false, 1, T)),
                MHA_BAD_ARGUMENT, "from: data is memory of the host");
        refused(c.gpu,
                mha_activation_forward(c.gpu, mha_tensor_2d(y.device, MHA_FLOAT32, 2, 2), none,
                                       mha_tensor_2d(x.host, MHA_FLOAT32, 2, 2), MHA_GELU),
                MHA_BAD_ARGUMENT, "z: data is memory of the host");
        refused_starts(&c, &l, numbers_view(&x, true, 1, T), numbers_view(&y, true, 1, T));
        numbers_free(&x);
        numbers_free(&y);
    }
    layers_free(&l);
    both_stop(&c);
}

/* A layer that gets no memory is not made, and the context still works. */
TEST(no_memory_for_a_layer)
{
    both c;
    kind k = kind_of(0);
    layers l;
    mha_layer *wide = NULL;
    if (!both_start(&c, NULL)) return;
    gpu_take_all();
    k.options.width = 1536;
    refused(c.gpu, mha_layer_create(c.gpu, &wide, &k.options, NULL), MHA_NO_MEMORY, "cuda has no");
    gpu_give_back();
    expect(!wide, "there is a layer");
    k = kind_of(0);
    layers_make(&l, &c, &k.options);
    layers_free(&l);
    both_stop(&c);
}
