/* Output of mha bench: a table, or one JSON object per line. */
#include "cli/bench/print.h"
#include "cli/common/device.h"
#include "gpu/gpu.h"

#include <stdio.h>

const char *const bench_pass_names[] = {"forward", "backward", "decode", "gemm",    "layer", "train",
                                        "infer",   "generate", "prompt", "scaling", NULL};

static void help_language(void)
{
    puts("\nLanguage models (only with --pass generate, --pass prompt or by --shape):");
    for (const bench_language *s = bench_languages; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
    puts("Random weights of --dtype in the layout of the family's files; --compute is the\n"
         "type that products round their factors to, as --dtype of 'mha generate'. prompt\n"
         "is one pass over --prompt tokens; generate is one of --tokens steps behind them,\n"
         "in turns with a loop that reads the same weights. A step is verified against a\n"
         "pass over the whole text. GB/s count weights, keys and values. Further keys of\n"
         "--json: prompt, tokens, compute, tokens_per_s, tokens_per_s_best.");
}

static void help_gpu(void)
{
    puts("\nOn a GPU: forward, backward and decode. Calls are captured as a CUDA graph whose\n"
         "replays are timed by events, at least 20 ms in a row: the time of the kernels.\n"
         "Keys and values of decode are as many as no cache holds. The limit is that of\n"
         "the tensor cores (float32: the float32 units) and of the memory at the highest\n"
         "clocks; MHz is the clock while it was measured. --json has sm_mhz instead of\n"
         "threads.");
}

static void help_scaling(void)
{
    puts("\nScaling: attention over T from 64 to 65536 (8 heads, width 64), then over the\n"
         "number of heads and their width (T 1024); fused, one head after another, and\n"
         "unfused over the peer's BLAS, with the scores of a head in memory. Memory is\n"
         "what is allocated beside q, k, v and the result, at its peak. The unfused way is\n"
         "left out from 4 GiB for one matrix of scores on. Exponents are fitted over all T\n"
         "from 512 on. Keys of --json, per size and way: pass, axis (T, H or D), way\n"
         "(fused, one_by_one, unfused), T, H, D, dtype, threads, isa, ms, extra_bytes,\n"
         "array_bytes, max_error, left_out; then, per way: exponent_of (T), way,\n"
         "time_exponent, memory_exponent. Values that were not measured are null.");
}

static void help_options(void)
{
    puts("Examples:\n"
         "  mha bench             everything, float32, all threads\n"
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
         "                        time and memory over T, heads and width, as a chart\n"
         "\n"
         "Usage: mha bench [OPTIONS]\n"
         "  --shape NAME          one of the shapes below, or all (default)\n"
         "  --pass PASS           forward, backward, decode, gemm, layer, train, infer,\n"
         "                        all of these (default), or generate, prompt, scaling\n"
         "  --dtype TYPE          f32 (default), bf16 (default on a GPU) or f16\n" CLI_HELP_DEVICE CLI_HELP_THREADS
         "  --isa NAME            instruction set (default: the best one available)\n"
         "  --peer PEER           openblas, loop or none (default: openblas if it is\n"
         "                        installed, otherwise loop)\n"
         "  --batch N             batch size of models\n"
         "  --prompt N            of language models: tokens of the prompt (512)\n"
         "  --tokens N            of language models: new tokens (32)\n"
         "  --compute TYPE        of language models: f32 (default) or bf16\n"
         "  --seconds S           time per measurement (1)\n"
         "  --save DIR            write inputs and outputs as safetensors files into DIR\n"
         "  -o CHART              of scaling: the chart, an SVG file\n"
         "  --length N            of scaling: the largest T (65536)\n"
         "  --list                print the passes and shapes, one per line, and exit;\n"
         "                        generate, prompt and scaling only if --pass names them\n"
         "  --json                print one JSON object per measurement\n");
}

static void help_shapes(void)
{
    puts("Attention shapes:");
    for (const bench_shape *s = bench_shapes; s->name; s++)
        if (!s->large) printf("  %-15s%s\n", s->name, s->what);
    puts("\nFor GPUs, and on the CPU by --shape only:");
    for (const bench_shape *s = bench_shapes; s->name; s++)
        if (s->large) printf("  %-15s%s\n", s->name, s->what);
    puts("\nMatrix product shapes:");
    for (const bench_product *s = bench_products; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
    puts("\nMulti-head layers:");
    for (const bench_layer *s = bench_layers; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
    puts("\nModels (float32 and bfloat16):");
    for (const bench_model *s = bench_models; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
}

void bench_help(void)
{
    help_options();
    help_shapes();
    help_language();
    help_gpu();
    help_scaling();
    puts("\n"
         "Each measurement is verified against a float64 oracle on samples, then timed:\n"
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
         "'./dev bench' also measures PyTorch and draws a chart.");
}

/* A number, or null if it is not finite. */
static void print_number(const char *key, const char *format, double x)
{
    printf(", \"%s\": ", key);
    if (isfinite(x)) printf(format, x);
    else printf("null");
}

/* GB/s: of the loop that reads the same bytes, if there was one. */
static double read_limit(const bench_limits *limits, const bench_result *b)
{
    return b->read_gbytes > 0 ? b->read_gbytes : limits->read_gbytes;
}

void bench_print_json(const bench_setting *set, const bench_limits *limits, const bench_job *job, const bench_result *b)
{
    printf("{\"shape\": \"%s\", \"dtype\": \"%s\", \"pass\": \"%s\", \"device\": \"%s\", \"isa\": \"%s\"", job->name,
           mha_type_name(set->type), bench_pass_names[job->pass], mha_context_device(set->ctx),
           mha_context_isa(set->ctx));
    if (set->gpu) print_number("sm_mhz", "%.0f", b->mhz);
    else printf(", \"threads\": %d", mha_context_threads(set->ctx));
    print_number("ms_median", "%.6g", b->ms_median);
    print_number("ms_best", "%.6g", b->ms_best);
    print_number("gflops", "%.5g", b->gflops);
    if (b->images > 0) print_number("images_per_s", "%.6g", b->images);
    if (b->tokens > 0) {
        printf(", \"prompt\": %lld, \"tokens\": %lld, \"compute\": \"%s\"", (long long)set->prompt,
               (long long)set->tokens, mha_type_name(set->compute));
        print_number("tokens_per_s", "%.6g", b->tokens);
        print_number("tokens_per_s_best", "%.6g", b->tokens_best);
    }
    if (b->gbytes > 0) {
        print_number("gb_per_s", "%.5g", b->gbytes);
        print_number("bandwidth_gb_per_s", "%.5g", read_limit(limits, b));
        print_number("percent_of_bandwidth", "%.1f", 100 * b->gbytes / read_limit(limits, b));
    } else {
        print_number("peak_gflops", "%.5g", limits->peak_gflops);
        print_number("percent_of_peak", "%.1f", 100 * b->gflops / limits->peak_gflops);
    }
    print_number("max_error", "%.3g", b->max_error);
    if (set->blas) printf(", \"peer\": \"%s\", \"peer_version\": \"%s\"", set->blas->name, set->blas->version);
    print_number("peer_ms", "%.6g", b->peer_ms);
    print_number("peer_error", "%.3g", b->peer_error);
    printf(", \"scratch_bytes\": %zu}\n", b->scratch_bytes);
}

static void print_gpu_head(const bench_setting *set, const bench_limits *limits)
{
    printf("%s, %s: %.0f TFLOP/s and %.2f TB/s at its highest clock, %.0f MHz\n", mha_context_isa(set->ctx),
           mha_type_name(set->type), limits->peak_gflops * 1e-3, limits->read_gbytes * 1e-3,
           bench_gpu_highest_clock(set->gpu));
    printf("\n%-15s%-10s%10s%9s%13s%12s%10s\n", "shape", "pass", "ms", "rate", "of limit", "MHz", "error");
}

void bench_print_head(const bench_setting *set, const bench_limits *limits, bool language)
{
    if (set->gpu) {
        print_gpu_head(set, limits);
        return;
    }
    int threads = mha_context_threads(set->ctx);
    printf("%s, %s, %d thread%s: %.1f GFLOP/s of multiply-adds, %.1f GB/s read\n", mha_context_isa(set->ctx),
           mha_type_name(set->type), threads, threads == 1 ? "" : "s", limits->peak_gflops, limits->read_gbytes);
    if (language) {
        printf("Products in %s, prompts of %lld tokens, %lld new ones\n", mha_type_name(set->compute),
               (long long)set->prompt, (long long)set->tokens);
        printf("\n%-12s%-9s%10s%9s%9s%12s%9s%9s\n", "shape", "pass", "ms", "tok/s", "best", "rate", "of limit",
               "error");
        return;
    }
    if (set->blas && *set->blas->version) cli_print(stdout, "OpenBLAS %s\n", set->blas->version);
    printf("\n%-15s%-10s%10s%9s%13s%12s%10s\n", "shape", "pass", "ms", "rate", "of limit",
           set->blas ? set->blas->name : "peer", "error");
}

/* A cell of the table, or a dash if the value is not finite. */
static void print_cell(int width, const char *format, double x)
{
    char text[32] = "-";
    if (isfinite(x)) snprintf(text, sizeof text, format, x);
    printf("%*s", width, text);
}

static void print_language_row(const bench_job *job, const bench_result *b, double share)
{
    printf("%-12s%-9s%10.3f%9.1f%9.1f", job->name, bench_pass_names[job->pass], b->ms_median, b->tokens,
           b->tokens_best);
    printf("%7.1f %s", b->gbytes > 0 ? b->gbytes : b->gflops, b->gbytes > 0 ? "GB/s" : "GF/s");
    print_cell(9, "%.0f %%", 100 * share);
    print_cell(9, "%.1e", b->max_error);
    printf("\n");
}

void bench_print_row(const bench_limits *limits, const bench_job *job, const bench_result *b)
{
    bool reads = b->gbytes > 0;
    double share = reads ? b->gbytes / read_limit(limits, b) : b->gflops / limits->peak_gflops;
    if (b->tokens > 0) {
        print_language_row(job, b, share);
        return;
    }
    bool gpu = b->mhz != 0, tera = gpu && !reads;
    printf(gpu ? "%-15s%-10s%10.4f" : "%-15s%-10s%10.3f", job->name, bench_pass_names[job->pass], b->ms_median);
    print_cell(9, "%.1f", b->images > 0 ? b->images : reads ? b->gbytes : tera ? b->gflops * 1e-3 : b->gflops);
    printf(" %s", b->images > 0 ? "img/s" : reads ? "GB/s " : tera ? "TF/s " : "GF/s ");
    print_cell(7, "%.0f %%", 100 * share);
    if (gpu) print_cell(12, "%.0f", b->mhz);
    else print_cell(12, "%.2fx", b->peer_ms / b->ms_median);
    print_cell(10, "%.1e", b->max_error);
    printf("\n");
}
