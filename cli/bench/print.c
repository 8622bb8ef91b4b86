/* What mha bench prints: a table for people, a JSON object a line for programs. */
#include "cli/bench/print.h"
#include "cli/common/cli.h"
#include <stdio.h>

const char *const bench_pass_names[] = {"forward", "backward", "decode", "gemm", "layer", "train", "infer", NULL};

void bench_help(void)
{
    puts("Examples:\n"
         "  mha bench                        everything, float32, all threads\n"
         "  mha bench --pass backward --shape bert_base --threads 1\n"
         "  mha bench --dtype bf16 --json    a JSON object a line, for programs\n"
         "  mha bench --shape vit_b16 --pass forward --save .\n"
         "                                   keep the arrays, as a safetensors file\n"
         "  mha bench --pass train           images a second, in training\n"
         "\n"
         "Usage: mha bench [--shape NAME|all] [--dtype f32|bf16|f16]\n"
         "                 [--pass forward|backward|decode|gemm|layer|train|infer|all]\n"
         "                 [--threads N] [--isa NAME] [--peer openblas|loop|none]\n"
         "                 [--batch N] [--seconds S] [--json] [--save DIR] [--list]\n"
         "\n"
         "Shapes of attention:");
    for (const bench_shape *s = bench_shapes; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
    puts("\nShapes of the matrix product:");
    for (const bench_product *s = bench_products; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
    puts("\nMulti-head layers:");
    for (const bench_layer *s = bench_layers; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
    puts("\nModels, in float32 and bfloat16:");
    for (const bench_model *s = bench_models; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
    puts("\n"
         "Each measurement is verified against the float64 oracle on samples, then timed:\n"
         "the median of at least three runs and of S seconds (1) of them. The columns:\n"
         "  rate       GFLOP/s; GB/s of keys, values and weights for decode and mha_step;\n"
         "             images a second for models, in batches of 128 to train on and of\n"
         "             256 to look at, or of N\n"
         "  of limit   the share of what the same threads reach with float32 multiply-adds\n"
         "             alone, or with reading alone, measured in the same run\n"
         "  openblas   its time over ours: attention through the whole (Tq,Tk) matrix over\n"
         "             OpenBLAS, or its matrix product, on as many threads, in float32;\n"
         "             'loop' is the same over plain loops, where OpenBLAS is missing;\n"
         "             layers and models have no such peer\n"
         "  error      the largest difference to the oracle, over the largest value; of\n"
         "             training, that of a loss or of a gradient's norm\n"
         "--list prints what would be measured, a pass and a shape a line. './dev bench'\n"
         "measures float32 and bfloat16 beside PyTorch, too, and draws a chart.");
}

/* A number, or null where there is none. */
static void print_number(const char *key, const char *format, double x)
{
    printf(", \"%s\": ", key);
    if (isfinite(x)) printf(format, x);
    else printf("null");
}

void bench_print_json(const bench_setting *set, const bench_limits *limits, const bench_job *job, const bench_result *b)
{
    printf("{\"shape\": \"%s\", \"dtype\": \"%s\", \"pass\": \"%s\", \"threads\": %d, \"isa\": \"%s\"", job->name,
           mha_type_name(set->type), bench_pass_names[job->pass], mha_context_threads(set->ctx),
           mha_context_isa(set->ctx));
    print_number("ms_median", "%.6g", b->ms_median);
    print_number("ms_best", "%.6g", b->ms_best);
    print_number("gflops", "%.5g", b->gflops);
    if (b->images > 0) print_number("images_per_s", "%.6g", b->images);
    if (b->gbytes > 0) {
        print_number("gb_per_s", "%.5g", b->gbytes);
        print_number("bandwidth_gb_per_s", "%.5g", limits->read_gbytes);
        print_number("percent_of_bandwidth", "%.1f", 100 * b->gbytes / limits->read_gbytes);
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

void bench_print_head(const bench_setting *set, const bench_limits *limits)
{
    int threads = mha_context_threads(set->ctx);
    printf("%s, %s, %d thread%s: %.1f GFLOP/s of multiply-adds, %.1f GB/s read\n", mha_context_isa(set->ctx),
           mha_type_name(set->type), threads, threads == 1 ? "" : "s", limits->peak_gflops, limits->read_gbytes);
    if (set->blas && *set->blas->version) cli_print(stdout, "OpenBLAS %s\n", set->blas->version);
    printf("\n%-15s%-10s%10s%9s%13s%12s%10s\n", "shape", "pass", "ms", "rate", "of limit",
           set->blas ? set->blas->name : "peer", "error");
}

/* A cell of the table, or a dash where there is nothing. */
static void print_cell(int width, const char *format, double x)
{
    char text[32] = "-";
    if (isfinite(x)) snprintf(text, sizeof text, format, x);
    printf("%*s", width, text);
}

void bench_print_row(const bench_limits *limits, const bench_job *job, const bench_result *b)
{
    bool reads = b->gbytes > 0;
    double share = reads ? b->gbytes / limits->read_gbytes : b->gflops / limits->peak_gflops;
    printf("%-15s%-10s%10.3f", job->name, bench_pass_names[job->pass], b->ms_median);
    print_cell(9, "%.1f", b->images > 0 ? b->images : reads ? b->gbytes : b->gflops);
    printf(" %s", b->images > 0 ? "img/s" : reads ? "GB/s " : "GF/s ");
    print_cell(7, "%.0f %%", 100 * share);
    print_cell(12, "%.2fx", b->peer_ms / b->ms_median);
    print_cell(10, "%.1e", b->max_error);
    printf("\n");
}
