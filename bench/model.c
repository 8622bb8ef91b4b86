/* A Vision Transformer at work: one step of its training, from pixels to changed weights, and one look at a batch. A
 * small batch is checked against the oracle, then the clock runs. There is no BLAS peer; PyTorch's model gets the same
 * weights and images, and must come to the same losses, step after step, or to the same logits. */
#include "model.h"
#include "data/digits.h"
#include "train/predictor.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 }; /* whose losses are kept, for whoever computes the same */

const bench_model bench_models[] = {
    {"vit_digits", "a Vision Transformer: 4x4 patches, 64 wide, 6 blocks, 4 heads", 128, 256},
    {NULL, NULL, 0, 0},
};

typedef struct model_bench {
    const bench_setting *set;
    const bench_model *model;
    const char *pass;
    int64_t batch;
    nn_description d;
    nn_mnist *digits;
    nn_image_set images;
    float *parameters; /* as they were at first */
    int64_t count;
    nn_trainer *trainer;
    nn_model *net; /* of an inference: the names of its parameters */
    nn_predictor *predictor;
    float *logits, losses[STEPS];
    bool failed;
} model_bench;

nn_description bench_model_config(mha_type type, const nn_mnist *set)
{
    nn_description d = nn_description_default();
    d.bfloat16 = type == MHA_BFLOAT16;
    nn_mnist_statistics(set, &set->train, &d.encoder.input.mean, &d.encoder.input.deviation);
    return d;
}

nn_trainer_options bench_model_options(int64_t batch)
{
    nn_trainer_options o = NN_TRAINER_DEFAULTS;
    o.epochs = INT32_MAX;
    o.batch = batch;
    o.rate = o.floor = 1e-3;
    o.warmup = o.clip = o.average = 0;
    o.smoothing = 0;
    o.held_out = 0;
    return o;
}

/* Multiply-adds of one image on its way through the model, twice. */
static double forward_flops(const nn_description *d)
{
    const nn_input_config *in = &d->encoder.input;
    const nn_blocks_config *b = &d->encoder.blocks;
    double M = (double)b->width, N = (double)b->mlp, pixels = (double)(in->rows * in->columns);
    double T = (double)nn_input_tokens(in), classes = (double)d->output.classes;
    return 2 * (pixels * M + (double)b->depth * T * (4 * M * M + 2 * M * N + 2 * T * M) + M * classes);
}

/* ---- Keeping it ------------------------------------------------------------------------------------------------- */

/* The weights at first, the images and labels, and what became of them, with all that a peer has to know. */
static bool save(const model_bench *b, const nn_model *net, char error[200])
{
    const nn_mnist_part *part = &b->digits->train;
    char path[BENCH_PATH], threads[16], seconds[32], rate[32], decay[32];
    nn_trainer_options o = bench_model_options(b->batch);
    if (!b->set->save) return true;
    if (!bench_save_path(path, b->set, b->pass, b->model->name, error)) return false;
    snprintf(threads, sizeof threads, "%d", mha_context_threads(b->set->ctx));
    snprintf(seconds, sizeof seconds, "%g", b->set->seconds);
    snprintf(rate, sizeof rate, "%.9g", o.rate);
    snprintf(decay, sizeof decay, "%.9g", o.decay);
    const int64_t images[] = {part->count, b->digits->rows, b->digits->columns};
    const int64_t logits[] = {part->count, nn_model_description(net)->output.classes}, steps = STEPS;
    nn_safetensors_item items[] = {
        nn_safetensors_item_dense(NN_VIT_FILE_EXTRA "images", NN_SAFETENSORS_U8, 3, images, part->images),
        nn_safetensors_item_dense(NN_VIT_FILE_EXTRA "labels", NN_SAFETENSORS_U8, 1, images, part->labels),
        b->trainer ? nn_safetensors_item_dense(NN_VIT_FILE_EXTRA "losses", NN_SAFETENSORS_F32, 1, &steps, b->losses)
                   : nn_safetensors_item_dense(NN_VIT_FILE_EXTRA "logits", NN_SAFETENSORS_F32, 2, logits, b->logits)};
    nn_safetensors_pair notes[] = {
        {"pass", b->pass},    {"shape", b->model->name}, {"dtype", bench_type_word(b->set->type)},
        {"threads", threads}, {"seconds", seconds},      {"rate", rate},
        {"decay", decay}};
    nn_vit_save_options options = NN_VIT_SAVE_DEFAULTS;
    options.items = items;
    options.item_count = 3;
    options.notes = notes;
    options.note_count = sizeof notes / sizeof *notes;
    return nn_vit_save(nn_model_description(net), b->parameters, path, &options, error, 200);
}

/* ---- Both ------------------------------------------------------------------------------------------------------- */

static bool begin(model_bench *b, char error[200])
{
    b->digits = nn_digits_make(b->batch, 1, 1, error, 200);
    if (!b->digits) return false;
    b->d = bench_model_config(b->set->type, b->digits);
    nn_image_set_make(&b->images, b->digits, &b->d, NULL);
    b->count = nn_model_count(&b->d, error, 200);
    b->parameters = malloc((size_t)b->count * sizeof(float));
    if (!b->parameters) snprintf(error, 200, "%s: not enough memory", b->model->name);
    return b->parameters;
}

static void end(model_bench *b)
{
    nn_trainer_free(b->trainer);
    nn_predictor_free(b->predictor);
    nn_model_free(b->net);
    nn_mnist_free(b->digits);
    free(b->parameters);
    free(b->logits);
}

static void measure(bench_result *result, model_bench *b, void (*run)(void *arg), double flops)
{
    result->peer_ms = result->peer_error = NAN;
    bench_time(b->set, run, b, &result->ms_median, &result->ms_best);
    result->images = 1e3 * (double)b->batch / result->ms_median;
    result->gflops = flops * result->images * 1e-9;
    result->scratch_bytes = mha_context_scratch(b->set->ctx);
}

/* ---- Training --------------------------------------------------------------------------------------------------- */

static void step(void *arg)
{
    model_bench *b = arg;
    nn_trainer_report report;
    if (nn_trainer_step(b->trainer, b->set->ctx, &report) != NN_TRAINER_WENT_ON) b->failed = true;
    else if (report.step < STEPS) b->losses[report.step] = (float)report.loss;
}

static bool make_trainer(model_bench *b, char error[200])
{
    nn_trainer_options options = bench_model_options(b->batch);
    b->trainer = nn_trainer_create(b->set->ctx, &b->d, &b->images.train, &b->images.test, &options, error, 200);
    if (!b->trainer) return false;
    memcpy(b->parameters, b->trainer->parameters, (size_t)b->count * sizeof(float));
    return true;
}

bool bench_train(bench_result *result, const bench_setting *set, const bench_model *model, char error[200])
{
    model_bench b = {.set = set, .model = model, .pass = "train", .batch = set->batch ? set->batch : model->train};
    bool done = begin(&b, error) && make_trainer(&b, error);
    if (done) {
        *result = (bench_result){.max_error = bench_training_error(set->ctx, set->type, b.batch)};
        for (int n = 0; n < STEPS; n++) step(&b);
        measure(result, &b, step, 3 * forward_flops(&b.d));
        const char *why = b.trainer->workers->error;
        if (b.failed) snprintf(error, 200, "%s: %.150s", model->name, *why ? why : "the training diverged");
    }
    done = done && !b.failed && save(&b, b.trainer->net, error);
    end(&b);
    return done;
}

/* ---- Inference -------------------------------------------------------------------------------------------------- */

static void look(void *arg)
{
    model_bench *b = arg;
    if (!nn_predictor_run(b->predictor, b->set->ctx, b->logits, &b->images.train, 0, b->batch)) b->failed = true;
}

static bool make_predictor(model_bench *b, char error[200])
{
    b->logits = malloc((size_t)(b->batch * b->d.output.classes) * sizeof(float));
    if (!b->logits) {
        snprintf(error, 200, "%s: not enough memory", b->model->name);
        return false;
    }
    b->net = nn_model_create(b->set->ctx, &b->d, b->parameters, &(nn_model_options){.batch = 1}, error, 200);
    if (!b->net) return false;
    nn_model_initialize(b->net, 1);
    b->predictor = nn_predictor_create(b->set->ctx, &b->d, b->parameters, &b->images.train, error, 200);
    return b->predictor != NULL;
}

bool bench_infer(bench_result *result, const bench_setting *set, const bench_model *model, char error[200])
{
    model_bench b = {.set = set, .model = model, .pass = "infer", .batch = set->batch ? set->batch : model->infer};
    bool done = begin(&b, error) && make_predictor(&b, error);
    if (done) look(&b);
    if (done && !b.failed) {
        *result = (bench_result){.max_error = bench_logits_error(b.net, &b.images.train, b.logits)};
        measure(result, &b, look, forward_flops(&b.d));
    }
    if (b.failed) snprintf(error, 200, "%s: %.150s", model->name, nn_predictor_error(b.predictor));
    done = done && !b.failed && save(&b, b.net, error);
    end(&b);
    return done;
}
