/* Options begin with their size: zeros are refused, a shorter struct of an older program gets defaults for what it does not
 * know, a longer one is refused. And the device of a context. */
#include "support/contexts.h"
#include "support/harness.h"
#include <mha_ops.h>

enum { T = 3, D = 4 };

static float memory[6][T * D];

/* A call that reads its options from `options`. */
typedef struct reader {
    const char *macro;
    size_t size;
    void (*fill)(void *options, size_t size);
    mha_status (*call)(mha_context *ctx, const void *options);
} reader;

static mha_tensor heads(int n) { return mha_tensor_4d(memory[n], MHA_FLOAT32, 1, 1, T, D); }
static mha_tensor matrix(int n) { return mha_tensor_2d(memory[n], MHA_FLOAT32, 2, 2); }

static mha_status call_forward(mha_context *ctx, const void *options)
{
    return mha_attention_forward(ctx, heads(0), NULL, heads(1), heads(2), heads(3), options);
}

static mha_status call_backward(mha_context *ctx, const void *options)
{
    mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
    mha_tensor none = MHA_NO_TENSOR;
    gradients.q = heads(0);
    const mha_attention_saved saved = {heads(1), heads(2), heads(3), heads(5), none};
    return mha_attention_backward(ctx, &gradients, &saved, heads(4), none, options);
}

static mha_status call_stats(mha_context *ctx, const void *options)
{
    mha_stats stats = MHA_NO_STATS;
    mha_tensor none = MHA_NO_TENSOR;
    stats.entropy = mha_tensor_3d(memory[0], MHA_FLOAT32, 1, 1, T);
    return mha_attention_stats(ctx, &stats, heads(1), heads(2), none, NULL, options);
}

static mha_status call_rotary(mha_context *ctx, const void *options)
{
    mha_tensor table = mha_tensor_2d(memory[2], MHA_FLOAT32, T, D / 2);
    return mha_rotary_apply(ctx, heads(0), heads(1), table, table, options);
}

static mha_status call_matmul(mha_context *ctx, const void *options)
{
    return mha_matmul(ctx, matrix(0), matrix(1), matrix(2), options);
}

/* The gain, which the defaults lack, if the options have a size. */
static mha_status call_norm(mha_context *ctx, const void *options)
{
    mha_norm_options o;
    mha_tensor none = MHA_NO_TENSOR;
    memcpy(&o, options, sizeof o);
    o.gain = mha_tensor_1d(memory[2], MHA_FLOAT32, 2);
    return mha_norm_forward(ctx, matrix(0), none, matrix(1), &o);
}

static mha_status call_embedding(mha_context *ctx, const void *options)
{
    static const int32_t ids[2] = {1, 0};
    mha_tensor y = mha_tensor_3d(memory[0], MHA_FLOAT32, 1, 2, 2);
    return mha_embedding_forward(ctx, y, matrix(1), mha_tensor_2d(ids, MHA_INT32, 1, 2), options);
}

static mha_status call_loss(mha_context *ctx, const void *options)
{
    static const int32_t labels[2] = {1, 0};
    mha_loss loss;
    return mha_cross_entropy(ctx, &loss, matrix(0), matrix(1), mha_tensor_1d(labels, MHA_INT32, 2), options);
}

static mha_status call_dropout(mha_context *ctx, const void *options)
{
    mha_tensor to = mha_tensor_3d(memory[0], MHA_FLOAT32, 1, 2, 2);
    return mha_dropout(ctx, to, to, options);
}

/* Sizes are needed, beside the defaults. */
static mha_status call_layer(mha_context *ctx, const void *options)
{
    int64_t count;
    mha_layer_options o;
    memcpy(&o, options, ((const mha_layer_options *)options)->size ? sizeof o : 0);
    if (!((const mha_layer_options *)options)->size) return mha_layer_parameter_count(ctx, &count, options);
    o.width = 8;
    o.heads = 2;
    return mha_layer_parameter_count(ctx, &count, &o);
}

static void fill_attention(void *o, size_t size) { mha_attention_defaults(o, size); }
static void fill_stats(void *o, size_t size) { mha_stats_defaults(o, size); }
static void fill_rotary(void *o, size_t size) { mha_rotary_defaults(o, size); }
static void fill_matmul(void *o, size_t size) { mha_matmul_defaults(o, size); }
static void fill_layer(void *o, size_t size) { mha_layer_defaults(o, size); }

static void fill_norm(void *o, size_t size) { mha_norm_defaults(o, size); }
static void fill_embedding(void *o, size_t size) { mha_embedding_defaults(o, size); }
static void fill_loss(void *o, size_t size) { mha_loss_defaults(o, size); }
static void fill_dropout(void *o, size_t size) { mha_dropout_defaults(o, size); }

static const reader readers[] = {
    {"MHA_ATTENTION_DEFAULTS", sizeof(mha_attention_options), fill_attention, call_forward},
    {"MHA_ATTENTION_DEFAULTS", sizeof(mha_attention_options), fill_attention, call_backward},
    {"MHA_STATS_DEFAULTS", sizeof(mha_stats_options), fill_stats, call_stats},
    {"MHA_ROTARY_DEFAULTS", sizeof(mha_rotary_options), fill_rotary, call_rotary},
    {"MHA_MATMUL_DEFAULTS", sizeof(mha_matmul_options), fill_matmul, call_matmul},
    {"MHA_LAYER_DEFAULTS", sizeof(mha_layer_options), fill_layer, call_layer},
    {"MHA_NORM_DEFAULTS", sizeof(mha_norm_options), fill_norm, call_norm},
    {"MHA_EMBEDDING_DEFAULTS", sizeof(mha_embedding_options), fill_embedding, call_embedding},
    {"MHA_LOSS_DEFAULTS", sizeof(mha_loss_options), fill_loss, call_loss},
    {"MHA_DROPOUT_DEFAULTS", sizeof(mha_dropout_options), fill_dropout, call_dropout},
};

enum { READERS = sizeof readers / sizeof *readers };

TEST(zeros_are_refused)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    static const unsigned char zeros[1024];
    for (int n = 0; n < READERS; n++) {
        char want[120];
        snprintf(want, sizeof want, "options: their size is 0; start from %s", readers[n].macro);
        mha_status status = readers[n].call(ctx, zeros);
        expect(status == MHA_BAD_ARGUMENT && !strcmp(mha_context_error(ctx), want), "%d: %s: %s", n,
               mha_status_name(status), mha_context_error(ctx));
    }
    mha_context_free(ctx);
    mha_context_options options = {.threads = 1};
    expect(mha_context_create(&ctx, &options) == MHA_BAD_ARGUMENT && !ctx, "a context of zeros");
}

TEST(defaults_of_functions_and_macros_are_the_same)
{
    const mha_attention_options attention = MHA_ATTENTION_DEFAULTS;
    const mha_stats_options stats = MHA_STATS_DEFAULTS;
    const mha_rotary_options rotary = MHA_ROTARY_DEFAULTS;
    const mha_matmul_options matmul = MHA_MATMUL_DEFAULTS;
    const mha_layer_options layer = MHA_LAYER_DEFAULTS;
    const mha_norm_options norm = MHA_NORM_DEFAULTS;
    const mha_embedding_options embedding = MHA_EMBEDDING_DEFAULTS;
    const mha_loss_options loss = MHA_LOSS_DEFAULTS;
    const mha_dropout_options dropout = MHA_DROPOUT_DEFAULTS;
    const void *macros[] = {&attention, &attention, &stats,     &rotary, &matmul,
                            &layer,     &norm,      &embedding, &loss,   &dropout};
    for (int n = 0; n < READERS; n++) {
        unsigned char filled[1024] = {0}, twice[1024] = {0};
        readers[n].fill(filled, readers[n].size);
        memcpy(twice, macros[n], readers[n].size);
        size_t size;
        memcpy(&size, filled, sizeof size);
        expect(size == readers[n].size, "%s: its size is %zu", readers[n].macro, size);
        expect(!memcmp(filled, twice, sizeof size), "%s", readers[n].macro);
    }
    mha_context_options context;
    mha_context_defaults(&context, sizeof context);
    mha_context *ctx = NULL;
    expect(mha_context_create(&ctx, &context) == MHA_OK, "the defaults of a context are refused");
    mha_context_free(ctx);
}

/* An older program: its struct ends earlier, and what follows it in memory is not looked at. */
TEST(a_shorter_struct_gets_defaults)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_attention_options o;
    memset(&o, 0xff, sizeof o);
    mha_attention_defaults(&o, offsetof(mha_attention_options, dropout));
    expect(o.size == offsetof(mha_attention_options, dropout), "%zu", o.size);
    expect(call_forward(ctx, &o) == MHA_OK, "%s", mha_context_error(ctx));
    o.size = sizeof o + 8;
    expect(call_forward(ctx, &o) == MHA_BAD_ARGUMENT, "a longer struct is taken");
    mha_context_free(ctx);
}

TEST(the_device_of_a_context)
{
    char why[200] = "";
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    mha_context *ctx = NULL;
    options.error = why;
    options.error_size = sizeof why;
    options.device = "cpu";
    expect(mha_context_create(&ctx, &options) == MHA_OK && !strcmp(mha_context_device(ctx), "cpu"), "%s", why);
    mha_context_free(ctx);
    options.device = "tpu";
    expect(mha_context_create(&ctx, &options) == MHA_NO_DEVICE && !ctx, "a device that is not there");
    expect(!strcmp(why, "device: there is none called 'tpu'; there are cpu, cuda and cuda:N"), "%s", why);
    options.device = NULL;
    options.stream = why;
    expect(mha_context_create(&ctx, &options) == MHA_BAD_ARGUMENT && !ctx, "a stream of the CPU");
    expect(!strcmp(why, "stream: must be NULL, the CPU has none"), "%s", why);
    expect(!mha_context_device(NULL), "the device of nothing");
}
