/* Devices by name: what is said where one is not there, and what a remote one refuses. No test here needs a GPU. */
#include "core/device.h"
#include "cuda/questions.h"
#include "support/harness.h"

/* Everything that a remote device does not have is refused at the public edge: its table has no function to call. */
TEST(what_a_remote_device_cannot_do_is_refused)
{
    mha_context *ctx = remote_context();
    float x[64] = {0};
    mha_tensor m = mha_tensor_2d(x, MHA_FLOAT32, 8, 4), n = mha_tensor_2d(x + 32, MHA_FLOAT32, 8, 4);
    size_t bytes;
    const mha_status all[] = {mha_matmul_pack_size(ctx, &bytes, n, MHA_FLOAT32),
                              mha_matmul_pack(ctx, x, sizeof x, n, MHA_FLOAT32), mha_matmul_packed(ctx, m, n, x, NULL)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect(all[i] == MHA_UNSUPPORTED, "call %zu: %s", i, mha_status_name(all[i]));
    expect(!strcmp(mha_context_error(ctx), "mha_matmul_packed: not supported on cuda yet; use a context of the CPU"),
           "%s", mha_context_error(ctx));
    mha_context_free(ctx);
}

TEST(layers_stay_on_their_device)
{
    mha_context *ctx = remote_context(), *cpu = NULL;
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = 8;
    options.heads = 2;
    mha_layer *layer = NULL, *smaller = NULL;
    mha_cache *cache = NULL;
    float x[64] = {0};
    bool keep[2] = {true, false};
    mha_tensor input = mha_tensor_3d(x, MHA_FLOAT32, 1, 4, 8), output = mha_tensor_3d(x + 32, MHA_FLOAT32, 1, 4, 8);
    mha_layer_inputs inputs = {.query = input};
    mha_attention_plan plan;
    if (mha_context_create(&cpu, NULL) || mha_layer_create(cpu, &layer, &options, NULL)) exit(1);
    const mha_status all[] = {
        mha_layer_initialize(ctx, layer, 1), mha_layer_forward(ctx, layer, output, NULL, &inputs, NULL, NULL),
        mha_layer_explain(ctx, &plan, layer, output, NULL, &inputs, NULL), mha_layer_prune(ctx, &smaller, layer, keep),
        mha_cache_create(ctx, &cache, layer, 1, 8, MHA_FLOAT32)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect(all[i] == MHA_BAD_ARGUMENT, "call %zu: %s", i, mha_status_name(all[i]));
    expect(!strcmp(mha_context_error(ctx), "layer: was made on the device cpu, the context is on cuda"), "%s",
           mha_context_error(ctx));
    expect(!smaller && !cache, "something was made");
    mha_layer_free(layer);
    mha_context_free(cpu);
    mha_context_free(ctx);
}

/* ---- Devices that are not there --------------------------------------------------------------------------------- */

TEST(names_of_devices)
{
    static const struct {
        const char *name;
        int ordinal;
    } names[] = {{"cuda", 0}, {"cuda:0", 0},         {"cuda:12", 12}, {"cuda:", -1}, {"cuda:x", -1}, {"cuda:-1", -1},
                 {"cud", -1}, {"cuda:99999999", -1}, {"CUDA", -1},    {"cuda1", -1}, {"cuda:1 ", -1}};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        expect(mha_device_ordinal(names[n].name) == names[n].ordinal, "%s is %d", names[n].name,
               mha_device_ordinal(names[n].name));
}

/* The same line from both; with a GPU, its description. */
TEST(a_device_that_is_not_there_has_one_line_that_says_why)
{
    static const char *const devices[] = {"cuda", "cuda:98", "tpu"};
    for (int n = 0; n < 3; n++) {
        char why[400] = "", line[400] = "";
        mha_context *ctx = NULL;
        mha_context_options options = MHA_CONTEXT_DEFAULTS;
        options.device = devices[n];
        options.error = why;
        options.error_size = sizeof why;
        mha_status status = mha_context_create(&ctx, &options),
                   described = mha_device_describe(devices[n], line, sizeof line);
        expect(status == described && !strchr(line, '\n') && *line, "%s: %s", devices[n], line);
        if (status)
            expect(status == MHA_NO_DEVICE && !ctx && !strcmp(why, line) && !strncmp(why, "device: ", 8), "%s", why);
        else expect(n == 0 && !strcmp(mha_context_device(ctx), "cuda"), "%s has a context", devices[n]);
        mha_context_free(ctx);
    }
    char line[100];
    expect(mha_device_describe("cpu", line, sizeof line) == MHA_OK && strstr(line, "instruction set"), "%s", line);
    expect(mha_device_describe("tpu", line, sizeof line) == MHA_NO_DEVICE &&
               !strcmp(line, "device: there is none called 'tpu'; there are cpu, cuda and cuda:N"),
           "%s", line);
    expect(mha_device_describe("cpu", NULL, 0) == MHA_BAD_ARGUMENT, "no place for the line");
}
