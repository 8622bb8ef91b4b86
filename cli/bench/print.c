/* Output of mha bench: a table, or one JSON object per line. */
#include "cli/bench/print.h"
#include "cli/common/device.h"
#include "bench/gpu.h"

#include <stdio.h>

const cli_word bench_passes[] = {{"forward", BENCH_FORWARD}, {"backward", BENCH_BACKWARD}, {"decode", BENCH_DECODE},
                                 {"gemm", BENCH_GEMM},       {"layer", BENCH_LAYER},       {"train", BENCH_TRAIN},
                                 {"infer", BENCH_INFER},     {"generate", BENCH_GENERATE}, {"prompt", BENCH_PROMPT},
                                 {"scaling", BENCH_SCALING}, {"all", BENCH_PASSES},        {NULL, 0}};

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

static void help_shapes(void)
{
    puts("\nAttention shapes:");
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

void bench_list_shapes(void)
{
    help_shapes();
    help_language();
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
           mha_type_name(set->type), bench_passes[job->pass].name, mha_context_device(set->ctx),
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
    printf("%-12s%-9s%10.3f%9.1f%9.1f", job->name, bench_passes[job->pass].name, b->ms_median, b->tokens,
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
    printf(gpu ? "%-15s%-10s%10.4f" : "%-15s%-10s%10.3f", job->name, bench_passes[job->pass].name, b->ms_median);
    print_cell(9, "%.1f", b->images > 0 ? b->images : reads ? b->gbytes : tera ? b->gflops * 1e-3 : b->gflops);
    printf(" %s", b->images > 0 ? "img/s" : reads ? "GB/s " : tera ? "TF/s " : "GF/s ");
    print_cell(7, "%.0f %%", 100 * share);
    if (gpu) print_cell(12, "%.0f", b->mhz);
    else print_cell(12, "%.2fx", b->peer_ms / b->ms_median);
    print_cell(10, "%.1e", b->max_error);
    printf("\n");
}
