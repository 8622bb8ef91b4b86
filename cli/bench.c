/* mha bench: how fast the library is here, verified first, beside what the machine could do. */
#include "bench.h"
#include "cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum pass { FORWARD, BACKWARD, DECODE, GEMM, PASSES } pass;

static const char *const pass_names[] = {"forward", "backward", "decode", "gemm", NULL};

typedef struct request {
    const char *shape, *isa;
    mha_type type;
    int threads, pass; /* PASSES: all of them */
    bool json;
    bench_limits limits;
} request;

static void help(void)
{
    puts("mha bench: verify the library against the oracle, then time it\n"
         "\n"
         "  mha bench                              everything, float32, all threads\n"
         "  mha bench --pass backward --shape bert_base --threads 1\n"
         "  mha bench --dtype bf16 --json          a JSON object a line, for programs\n"
         "\n"
         "Usage: mha bench [--shape NAME|all] [--dtype f32|bf16|f16]\n"
         "                 [--pass forward|backward|decode|gemm|all]\n"
         "                 [--threads N] [--isa NAME] [--json]\n"
         "\n"
         "Shapes of attention:");
    for (const bench_shape *s = bench_shapes; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
    puts("\nShapes of the matrix product:");
    for (const bench_product *s = bench_products; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
    puts("\n"
         "'of limit' is the share of the float32 multiply-adds, or for decode of the read bandwidth,\n"
         "that the same threads reach when they do nothing else, measured in the same run. 'unfused'\n"
         "is three plain loops through a (Tq,Tk) buffer on as many threads, in float32. 'error' is the\n"
         "largest difference to the float64 oracle over samples, as a share of the largest value.");
}

static bool parse_word(const char *option, const char *word, const char *const *names, int *index)
{
    for (*index = 0; names[*index]; ++*index)
        if (strcmp(word, names[*index]) == 0) return true;
    const char *near = cli_closest(word, names);
    if (near) cli_error("bench: %s cannot be '%s'; did you mean '%s'?", option, word, near);
    else cli_error("bench: %s cannot be '%s'; see 'mha bench --help'", option, word);
    return false;
}

static bool parse_type(const char *word, request *r)
{
    static const char *const names[] = {"f32", "bf16", "f16", NULL};
    static const mha_type types[] = {MHA_FLOAT32, MHA_BFLOAT16, MHA_FLOAT16};
    int index;
    if (!parse_word("--dtype", word, names, &index)) return false;
    r->type = types[index];
    return true;
}

static bool parse_threads(const char *word, request *r)
{
    char *end;
    long n = strtol(word, &end, 10);
    r->threads = (int)n;
    if (*word && !*end && n >= 1 && n <= 4096) return true;
    cli_error("bench: --threads is a number from 1 to 4096, not '%s'", word);
    return false;
}

static bool parse_shape(const char *word, request *r)
{
    const char *names[64] = {"all"};
    int count = 1, index;
    for (const bench_shape *s = bench_shapes; s->name; s++) names[count++] = s->name;
    for (const bench_product *s = bench_products; s->name; s++) names[count++] = s->name;
    if (!parse_word("--shape", word, names, &index)) return false;
    r->shape = index ? names[index] : NULL;
    return true;
}

static bool parse_pass(const char *word, request *r)
{
    static const char *const names[] = {"forward", "backward", "decode", "gemm", "all", NULL};
    return parse_word("--pass", word, names, &r->pass);
}

static bool parse_isa(const char *word, request *r)
{
    r->isa = word;
    return true;
}

/* 0 to go on, else the exit code plus 1. */
static int parse(int argc, char **argv, request *r)
{
    static const char *const options[] = {"--shape", "--dtype", "--threads", "--pass",
                                          "--isa",   "--json",  "--help",    NULL};
    static bool (*const parsers[])(const char *, request *) = {parse_shape, parse_type, parse_threads, parse_pass,
                                                               parse_isa};
    enum { VALUES = sizeof parsers / sizeof *parsers };
    for (int i = 1; i < argc; i++) {
        if (cli_wants_help(argv[i])) {
            help();
            return CLI_OK + 1;
        }
        if (strcmp(argv[i], "--json") == 0) {
            r->json = true;
            continue;
        }
        int which = 0;
        while (which < VALUES && strcmp(argv[i], options[which]) != 0) which++;
        if (which == VALUES) return cli_unknown_option("bench", argv[i], options) + 1;
        if (++i == argc) {
            cli_error("bench: %s needs a value; see 'mha bench --help'", options[which]);
            return CLI_USAGE + 1;
        }
        if (!parsers[which](argv[i], r)) return CLI_USAGE + 1;
    }
    return 0;
}

/* A number, or null where there is none. */
static void print_number(const char *key, const char *format, double x)
{
    printf(", \"%s\": ", key);
    if (isfinite(x)) printf(format, x);
    else printf("null");
}

static void print_json(const char *name, pass which, const request *r, mha_context *ctx, const bench_result *b)
{
    printf("{\"shape\": \"%s\", \"dtype\": \"%s\", \"pass\": \"%s\", \"threads\": %d, \"isa\": \"%s\"", name,
           mha_type_name(r->type), pass_names[which], mha_context_threads(ctx), mha_context_isa(ctx));
    print_number("ms_median", "%.4f", b->ms_median);
    print_number("ms_best", "%.4f", b->ms_best);
    print_number("gflops", "%.2f", b->gflops);
    if (b->gbytes > 0) {
        print_number("gb_per_s", "%.2f", b->gbytes);
        print_number("bandwidth_gb_per_s", "%.2f", r->limits.read_gbytes);
        print_number("percent_of_bandwidth", "%.1f", 100 * b->gbytes / r->limits.read_gbytes);
    } else {
        print_number("peak_gflops", "%.1f", r->limits.peak_gflops);
        print_number("percent_of_peak", "%.1f", 100 * b->gflops / r->limits.peak_gflops);
    }
    print_number("unfused_ms", "%.4f", b->unfused_ms);
    print_number("max_error", "%.3g", b->max_error);
    printf(", \"scratch_bytes\": %zu}\n", b->scratch_bytes);
}

/* A cell of the table, or a dash where there is nothing. */
static void print_cell(int width, const char *format, double x)
{
    char text[32] = "-";
    if (isfinite(x)) snprintf(text, sizeof text, format, x);
    printf("%*s", width, text);
}

static void print_row(const char *name, pass which, const request *r, const bench_result *b)
{
    bool reads = b->gbytes > 0;
    double share = reads ? b->gbytes / r->limits.read_gbytes : b->gflops / r->limits.peak_gflops;
    printf("%-15s%-10s%10.3f", name, pass_names[which], b->ms_median);
    print_cell(9, "%.1f", reads ? b->gbytes : b->gflops);
    printf(" %s", reads ? "GB/s " : "GF/s ");
    print_cell(7, "%.0f %%", 100 * share);
    print_cell(12, "%.1fx", b->unfused_ms / b->ms_median);
    print_cell(10, "%.1e", b->max_error);
    printf("\n");
}

/* One measurement, if it was asked for. Returns an exit code. */
static int measure(const char *name, pass which, const request *r, mha_context *ctx, const bench_shape *shape,
                   const bench_product *product)
{
    char error[200];
    bench_result result;
    if ((r->pass != PASSES && r->pass != (int)which) || (r->shape && strcmp(r->shape, name) != 0)) return CLI_OK;
    bool done = which == GEMM       ? bench_gemm(&result, ctx, product, r->type, error)
                : which == BACKWARD ? bench_backward(&result, ctx, shape, r->type, error)
                                    : bench_forward(&result, ctx, shape, r->type, error);
    if (!done) {
        cli_error("bench: %s", error);
        return CLI_FAILED;
    }
    if (r->json) print_json(name, which, r, ctx, &result);
    else print_row(name, which, r, &result);
    fflush(stdout);
    return CLI_OK;
}

static int measure_all(const request *r, mha_context *ctx)
{
    int status = CLI_OK;
    for (const bench_shape *s = bench_shapes; s->name; s++)
        status |= measure(s->name, bench_is_decode(s) ? DECODE : FORWARD, r, ctx, s, NULL);
    for (const bench_shape *s = bench_shapes; s->name; s++)
        if (!bench_is_decode(s)) status |= measure(s->name, BACKWARD, r, ctx, s, NULL);
    for (const bench_product *s = bench_products; s->name; s++) status |= measure(s->name, GEMM, r, ctx, NULL, s);
    return status;
}

int cmd_bench(int argc, char **argv)
{
    request r = {.type = MHA_FLOAT32, .pass = PASSES};
    int stop = parse(argc, argv, &r);
    if (stop) return stop - 1;
    char error[200];
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.threads = r.threads;
    options.isa = r.isa;
    options.error = error;
    options.error_size = sizeof error;
    mha_context *ctx;
    if (mha_context_create(&ctx, &options)) {
        cli_error("bench: %s", error);
        return CLI_USAGE;
    }
    r.limits = bench_measure_limits(ctx);
    if (!r.json) {
        printf("%s, %s, %d thread%s: %.1f GFLOP/s of multiply-adds, %.1f GB/s read\n\n", mha_context_isa(ctx),
               mha_type_name(r.type), mha_context_threads(ctx), mha_context_threads(ctx) == 1 ? "" : "s",
               r.limits.peak_gflops, r.limits.read_gbytes);
        printf("%-15s%-10s%10s%9s%13s%12s%10s\n", "shape", "pass", "ms", "rate", "of limit", "unfused", "error");
    }
    int status = measure_all(&r, ctx);
    mha_context_free(ctx);
    return status;
}
