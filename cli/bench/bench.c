/* mha bench: verifies the library, then times it against the limits of the machine and a peer. */
#include "cli/bench/print.h"
#include "cli/common/device.h"
#include "bench/gpu.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS_MOST = 64, NOT_GIVEN = -1 };

typedef enum bench_peer { PEER_BEST, PEER_OPENBLAS, PEER_LOOP, PEER_NONE } bench_peer;

typedef struct request {
    const char *shape, *isa, *save; /* NULL for all, for the best one, for nowhere */
    const char *device;             /* NULL for the CPU */
    int type;                       /* mha_type, or NOT_GIVEN */
    int64_t threads;                /* 0 for all */
    int pass;                       /* BENCH_PASSES for all */
    bench_peer peer;
    double seconds;
    int64_t batch;          /* 0 for the model's own */
    const char *chart;      /* of scaling; NULL for none */
    int64_t length;         /* the largest T of scaling */
    int64_t prompt, tokens; /* of language models; 0 if not given */
    mha_type compute;
    bool json, list;
} request;

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static bool parse_shape(const cli_given *given, void *to)
{
    request *r = to;
    const char *names[JOBS_MOST] = {"all"}, *near;
    int count = 1;
    for (const bench_shape *s = bench_shapes; s->name; s++) names[count++] = s->name;
    for (const bench_product *s = bench_products; s->name; s++) names[count++] = s->name;
    for (const bench_layer *s = bench_layers; s->name; s++) names[count++] = s->name;
    for (const bench_model *s = bench_models; s->name; s++) names[count++] = s->name;
    for (const bench_language *s = bench_languages; s->name; s++) names[count++] = s->name;
    for (int n = 0; n < count; n++) {
        r->shape = n ? names[n] : NULL;
        if (strcmp(given->value, names[n]) == 0) return true;
    }
    near = cli_closest(given->value, names);
    if (near) return cli_refuse("%s cannot be '%s'; did you mean '%s'?", given->name, given->value, near);
    return cli_refuse("%s cannot be '%s'; see 'mha bench --help'", given->name, given->value);
}

static const cli_word peers[] = {{"openblas", PEER_OPENBLAS}, {"loop", PEER_LOOP}, {"none", PEER_NONE}, {NULL, 0}};

/* The peer that was asked for, or the best one. Prints an error and returns false if it is not there. */
static bool choose_peer(const bench_blas **blas, const request *r)
{
    *blas = r->peer == PEER_NONE ? NULL : r->peer == PEER_LOOP ? bench_loops() : bench_openblas();
    if (r->peer == PEER_BEST && !*blas) *blas = bench_loops();
    if (r->peer == PEER_BEST && device_is_gpu(r->device)) *blas = NULL;
    return *blas || r->peer != PEER_OPENBLAS ||
           cli_refuse("--peer openblas: libopenblas.so.0 is not installed; './dev setup bench' installs it");
}

static bool parse_save(const cli_given *given, void *to)
{
    request *r = to;
    DIR *folder = opendir(given->value);
    if (!folder) return cli_refuse("--save: cannot open the folder '%s': %s", given->value, strerror(errno));
    closedir(folder);
    r->save = given->value;
    return true;
}

static const cli_word types[] = {{"f32", MHA_FLOAT32}, {"bf16", MHA_BFLOAT16}, {"f16", MHA_FLOAT16}, {NULL, 0}};

static const cli_option options[] = {
    {"--shape", "NAME", "one of the shapes below, or all", CLI_OWN(parse_shape), .otherwise = "all"},
    {"--pass", "PASS", "what is measured; generate, prompt and scaling only by name:",
     CLI_CHOICE(request, pass, bench_passes), .preset = "all"},
    {"--dtype", "TYPE", "f32, bf16 or f16", CLI_CHOICE(request, type, types), .otherwise = "f32; bf16 on a GPU"},
    {CLI_DEVICE(request, device)},
    {CLI_THREADS(request, threads)},
    {"--isa", "NAME", "instruction set", CLI_TEXT(request, isa), .otherwise = "the best one available",
     .argument = "isa"},
    {"--peer", "PEER", "what it is compared with: openblas, loop or none", CLI_CHOICE(request, peer, peers),
     .otherwise = "openblas if it is installed, otherwise loop"},
    {"--batch", "N", "batch size of models", CLI_NUMBER(request, batch, 1, 65536)},
    {"--prompt", "N", "of language models: tokens of the prompt", CLI_NUMBER(request, prompt, 1, 65536),
     .otherwise = "512"},
    {"--tokens", "N", "of language models: new tokens", CLI_NUMBER(request, tokens, 1, 65536), .otherwise = "32"},
    {"--compute", "TYPE", "of language models:", CLI_CHOICE(request, compute, cli_dtypes), .preset = "f32"},
    {"--seconds", "S", "time per measurement", CLI_REAL(request, seconds, 0, 3600, "a number from 0 to 3600"),
     .preset = "1"},
    {"--save", "DIR", "write inputs and outputs as safetensors files into DIR", CLI_OWN(parse_save)},
    {CLI_OUT, "CHART", "of scaling: the chart, an SVG file", CLI_FILE(request, chart)},
    {"--length", "N", "of scaling: the largest T", CLI_NUMBER(request, length, 64, 65536), .preset = "65536"},
    {"--list", NULL,
     "print the passes and shapes, one per line, and exit; generate, prompt and scaling only if --pass names them",
     CLI_FLAG(request, list)},
    {"--json", NULL, "print one JSON object per measurement", CLI_FLAG(request, json)},
    CLI_END};

/* Options that only scaling has, and options that it has not. */
static bool check_scaling(const request *r)
{
    bool scaling = r->pass == BENCH_SCALING;
    const char *given = r->chart ? "-o" : cli_was_given("--length") ? "--length" : NULL;
    if (!scaling && given) return cli_refuse("%s is for --pass scaling", given);
    given = r->shape ? "--shape" : r->batch ? "--batch" : r->save ? "--save" : NULL;
    if (scaling && given) return cli_refuse("--pass scaling has its own sizes and takes no %s", given);
    return true;
}

/* Whether language models were requested. */
static bool is_language(const request *r)
{
    bool named = r->pass == BENCH_GENERATE || r->pass == BENCH_PROMPT;
    for (const bench_language *s = bench_languages; s->name && r->shape; s++) named |= strcmp(r->shape, s->name) == 0;
    return named;
}

/* The same for language models. */
static bool check_language(const request *r)
{
    bool language = is_language(r);
    const char *given = r->prompt                   ? "--prompt"
                        : r->tokens                 ? "--tokens"
                        : r->compute != MHA_FLOAT32 ? "--compute"
                                                    : NULL;
    if (!language && given) return cli_refuse("%s is for --pass generate and --pass prompt", given);
    if (language && r->batch) return cli_refuse("language models are measured one text at a time, without --batch");
    return true;
}

/* Options and passes that only the CPU has. */
static bool check_device(const request *r)
{
    const char *given = r->isa ? "--isa" : r->threads ? "--threads" : r->peer ? "--peer" : NULL;
    if (!device_is_gpu(r->device)) return true;
    if (given) return cli_refuse("%s is for the CPU and does not go with --device %s", given, r->device);
    if (r->pass <= BENCH_DECODE || r->pass == BENCH_PASSES) return true;
    return cli_refuse("--device %s measures the passes forward, backward and decode; %s runs on the CPU", r->device,
                      bench_passes[r->pass].name);
}

/* ---- The list of measurements ------------------------------------------------------------------------------------ */

static int add_job(bench_job *jobs, int count, const request *r, bench_job job)
{
    if (r->pass != BENCH_PASSES && r->pass != (int)job.pass) return count;
    if (r->shape && strcmp(r->shape, job.name) != 0) return count;
    jobs[count] = job;
    return count + 1;
}

/* Whether only models were requested. */
static bool is_model(const request *r)
{
    bool named = false;
    for (const bench_model *s = bench_models; s->name && r->shape; s++) named |= strcmp(r->shape, s->name) == 0;
    return named || (!r->shape && (r->pass == BENCH_TRAIN || r->pass == BENCH_INFER));
}

static int plan_attention(bench_job jobs[JOBS_MOST], const request *r)
{
    int n = 0;
    bool large = device_is_gpu(r->device) || r->shape;
    for (const bench_shape *s = bench_shapes; s->name; s++)
        if (!s->large || large)
            n = add_job(jobs, n, r, (bench_job){bench_is_decode(s) ? BENCH_DECODE : BENCH_FORWARD, s->name, s});
    for (const bench_shape *s = bench_shapes; s->name; s++)
        if (!bench_is_decode(s) && (!s->large || large))
            n = add_job(jobs, n, r, (bench_job){BENCH_BACKWARD, s->name, s});
    return n;
}

/* What only the CPU runs. */
static int plan_others(bench_job jobs[JOBS_MOST], int n, const request *r)
{
    for (const bench_product *s = bench_products; s->name; s++)
        n = add_job(jobs, n, r, (bench_job){BENCH_GEMM, s->name, s});
    for (const bench_layer *s = bench_layers; s->name; s++)
        if (!s->large || r->shape) n = add_job(jobs, n, r, (bench_job){BENCH_LAYER, s->name, s});
    for (const bench_model *s = bench_models; s->name && r->type != MHA_FLOAT16; s++) {
        n = add_job(jobs, n, r, (bench_job){BENCH_TRAIN, s->name, s});
        n = add_job(jobs, n, r, (bench_job){BENCH_INFER, s->name, s});
    }
    for (const bench_language *s = bench_languages; s->name && is_language(r); s++) {
        n = add_job(jobs, n, r, (bench_job){BENCH_PROMPT, s->name, s});
        n = add_job(jobs, n, r, (bench_job){BENCH_GENERATE, s->name, s});
    }
    return n;
}

/* Lists the measurements and returns their number. Prints an error and returns 0 if there are none. */
static int plan_jobs(bench_job jobs[JOBS_MOST], const request *r)
{
    bool gpu = device_is_gpu(r->device);
    int n = plan_attention(jobs, r);
    if (!gpu) n = plan_others(jobs, n, r);
    if (!n && gpu) cli_refuse("--device %s measures shapes of attention; '%s' runs on the CPU", r->device, r->shape);
    else if (!n && r->type == MHA_FLOAT16 && is_model(r)) cli_refuse("models are measured in f32 and bf16 only");
    else if (!n) cli_refuse("%s has no pass '%s'; see 'mha bench --list'", r->shape, bench_passes[r->pass].name);
    return n;
}

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

/* Whether the result is within tolerance; NAN means that it was not compared. */
static bool is_within_tolerance(const bench_job *job, mha_type type, const char *judge, double error)
{
    if (!(error > bench_tolerance(type))) return true;
    return cli_refuse("%s %s differs from %s by %.2g of the largest value; at most %.2g is allowed",
                      bench_passes[job->pass].name, job->name, judge, error, bench_tolerance(type));
}

/* Returns an exit code. */
static int measure_job(const bench_setting *set, const bench_limits *limits, const bench_job *job, bool json)
{
    char error[200];
    bench_result result;
    bool done = job->pass == BENCH_GEMM       ? bench_gemm(&result, set, job->shape, error)
                : job->pass == BENCH_TRAIN    ? bench_train(&result, set, job->shape, error)
                : job->pass == BENCH_INFER    ? bench_infer(&result, set, job->shape, error)
                : job->pass == BENCH_PROMPT   ? bench_prompt(&result, set, job->shape, error)
                : job->pass == BENCH_GENERATE ? bench_generate(&result, set, job->shape, error)
                : job->pass == BENCH_LAYER    ? bench_layer_forward(&result, set, job->shape, error)
                : job->pass == BENCH_BACKWARD ? bench_backward(&result, set, job->shape, error)
                                              : bench_forward(&result, set, job->shape, error);
    if (!done) {
        cli_refuse("%s", error);
        return CLI_FAILED;
    }
    if (json) bench_print_json(set, limits, job, &result);
    else bench_print_row(limits, job, &result);
    fflush(stdout);
    bool right = is_within_tolerance(job, set->compute, result.tokens > 0 ? "a pass over the whole text" : "the oracle",
                                     result.max_error);
    if (set->blas) right &= is_within_tolerance(job, set->type, set->blas->name, result.peer_error);
    return right ? CLI_OK : CLI_FAILED;
}

static mha_context *make_context(const request *r, bench_gpu *gpu)
{
    char error[400];
    mha_context_options how = MHA_CONTEXT_DEFAULTS;
    mha_context *ctx = NULL;
    how.threads = (int)r->threads;
    how.isa = r->isa;
    how.device = r->device;
    how.stream = gpu ? bench_gpu_stream(gpu) : NULL;
    how.error = error;
    how.error_size = sizeof error;
    if (mha_context_create(&ctx, &how)) cli_refuse("%s", cli_in_options(error));
    return ctx;
}

/* Opens the device: the GPU, if it is one, and the context. Prints an error and returns false on failure. */
static bool open_device(bench_setting *set, const request *r)
{
    char error[200];
    if (device_is_gpu(r->device)) {
        if (!device_is_there(r->device)) return false;
        const char *colon = strchr(r->device, ':'); /* cuda:N is there, so N is a number */
        set->gpu = bench_gpu_open(colon ? (int)strtol(colon + 1, NULL, 10) : 0, error);
        if (!set->gpu) return cli_refuse("--device %s", error);
    }
    set->ctx = make_context(r, set->gpu);
    return set->ctx;
}

static void close_device(bench_setting *set)
{
    mha_context_free(set->ctx);
    bench_gpu_close(set->gpu);
}

static int run_jobs(bench_setting *set, const request *r, const bench_job *jobs, int count)
{
    int status = CLI_OK;
    if (r->pass == BENCH_SCALING) return bench_run_scaling(set, r->length, r->chart, r->json);
    bench_limits limits = set->gpu ? bench_gpu_limits(set->gpu, set->type) : bench_measure_limits(set);
    if (!set->gpu && isnan(limits.read_gbytes)) {
        cli_refuse("not enough memory to measure the read bandwidth");
        return CLI_FAILED;
    }
    if (!r->json) bench_print_head(set, &limits, is_language(r));
    for (int i = 0; i < count; i++) status |= measure_job(set, &limits, &jobs[i], r->json);
    return status;
}

static int run_bench(void *asked)
{
    request *r = asked;
    bench_job jobs[JOBS_MOST];
    int count = 0, status = CLI_USAGE;
    if (r->type == NOT_GIVEN) r->type = device_is_gpu(r->device) ? MHA_BFLOAT16 : MHA_FLOAT32;
    if (!check_device(r) || !check_scaling(r) || !check_language(r) ||
        (r->pass != BENCH_SCALING && !(count = plan_jobs(jobs, r))))
        return CLI_USAGE;
    if (r->list && r->pass == BENCH_SCALING) return bench_list_sizes(r->length), CLI_OK;
    if (r->list) {
        for (int i = 0; i < count; i++) printf("%s %s\n", bench_passes[jobs[i].pass].name, jobs[i].name);
        return CLI_OK;
    }
    mha_type type = (mha_type)r->type;
    bench_setting set = {.type = type,
                         .compute = is_language(r) ? r->compute : type,
                         .save = r->save,
                         .seconds = r->seconds,
                         .batch = r->batch,
                         .prompt = r->prompt ? r->prompt : 512,
                         .tokens = r->tokens ? r->tokens : 32};
    if (choose_peer(&set.blas, r) && open_device(&set, r)) status = run_jobs(&set, r, jobs, count);
    close_device(&set);
    return status;
}

static const request defaults = {.type = NOT_GIVEN};

const cli_command bench_command = {
    .name = "bench",
    .summary = "verify and time attention on common shapes",
    .usage = "[OPTIONS]",
    .examples = "  mha bench             everything, float32, all threads\n"
                "  mha bench --pass backward --shape bert_base --threads 1\n"
                "  mha bench --dtype bf16 --json\n"
                "                        one JSON object per line\n"
                "  mha bench --shape vit_b16 --pass forward --save .\n"
                "                        also save the arrays as a safetensors file\n"
                "  mha bench --pass train\n"
                "                        training speed in images per second\n"
                "  mha bench --pass generate --shape gpt2_124m\n"
                "                        new tokens per second of a language model\n"
                "  mha bench --device cuda\n"
                "                        attention on an NVIDIA GPU, in bfloat16\n"
                "  mha bench --pass scaling -o scaling.svg\n"
                "                        time and memory over T, heads and width, as a chart\n",
    .notes = "Each measurement is verified against a float64 oracle on samples, then timed:\n"
             "the median of at least three runs that take S seconds in total. Columns:\n"
             "  rate       GFLOP/s; GB/s of keys, values and weights for decode and mha_step;\n"
             "             images per second for models, in batches of 128 for training and\n"
             "             256 for inference, or of --batch\n"
             "  of limit   share of the float32 multiply-add rate or of the read bandwidth\n"
             "             that the same threads reach, measured in the same run\n"
             "  openblas   time of OpenBLAS divided by ours, with as many threads, in float32:\n"
             "             unfused attention with the full (Tq,Tk) matrix, or the matrix\n"
             "             product. 'loop' is the same with plain loops. Layers and models\n"
             "             have no such peer\n"
             "  error      largest difference from the oracle, relative to the largest value;\n"
             "             for training, of a loss or a gradient norm\n"
             "'./dev bench' also measures PyTorch and draws a chart.\n"
             "\nOn a GPU: forward, backward and decode. Calls are captured as a CUDA graph whose\n"
             "replays are timed by events, at least 20 ms in a row: the time of the kernels.\n"
             "Keys and values of decode are as many as no cache holds. The limit is that of\n"
             "the tensor cores (float32: the float32 units) and of the memory at the highest\n"
             "clocks; MHz is the clock while it was measured. --json has sm_mhz instead of\n"
             "threads.\n"
             "\nScaling: attention over T from 64 to 65536 (8 heads, width 64), then over the\n"
             "number of heads and their width (T 1024); fused, one head after another, and\n"
             "unfused over the peer's BLAS, with the scores of a head in memory. Memory is\n"
             "what is allocated beside q, k, v and the result, at its peak. The unfused way is\n"
             "left out from 4 GiB for one matrix of scores on. Exponents are fitted over all T\n"
             "from 512 on. Keys of --json, per size and way: pass, axis (T, H or D), way\n"
             "(fused, one_by_one, unfused), T, H, D, dtype, threads, isa, ms, extra_bytes,\n"
             "array_bytes, max_error, left_out; then, per way: exponent_of (T), way,\n"
             "time_exponent, memory_exponent. Values that were not measured are null.\n",
    .print_lists = bench_list_shapes,
    .options = options,
    .request_size = sizeof(request),
    .defaults = &defaults,
    .run = run_bench};
