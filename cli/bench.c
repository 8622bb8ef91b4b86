/* mha bench: how fast attention is here, verified first, beside the loop that one would write without thinking. */
#include "bench.h"
#include "cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    const char *shape, *isa;
    mha_type type;
    int threads;
    bool json;
} request;

static void help(void)
{
    puts("mha bench: verify the library against the oracle, then time it\n"
         "\n"
         "  mha bench                              every shape, float32, all threads\n"
         "  mha bench --shape bert_base --threads 1\n"
         "  mha bench --dtype bf16 --json          a JSON object a line, for programs\n"
         "\n"
         "Usage: mha bench [--shape NAME|all] [--dtype f32|bf16|f16] [--threads N] [--isa NAME] [--json]\n"
         "\n"
         "Shapes:");
    for (const bench_shape *s = bench_shapes; s->name; s++) printf("  %-15s%s\n", s->name, s->what);
    puts("\n"
         "'unfused' is three plain loops through a (Tq,Tk) buffer, compiled alike and run on as many\n"
         "threads, in float32. 'error' is the largest difference to the float64 oracle over sampled\n"
         "rows, as a share of the largest value.");
}

/* The value of option number *i; NULL, with a message, if there is none. */
static const char *value_of(int argc, char **argv, int *i)
{
    if (*i + 1 < argc) return argv[++*i];
    cli_error("bench: %s needs a value; see 'mha bench --help'", argv[*i]);
    return NULL;
}

static bool parse_type(const char *word, mha_type *type)
{
    static const struct {
        const char *name;
        mha_type type;
    } names[] = {{"f32", MHA_FLOAT32}, {"bf16", MHA_BFLOAT16}, {"f16", MHA_FLOAT16}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(word, names[i].name) == 0) {
            *type = names[i].type;
            return true;
        }
    cli_error("bench: --dtype is f32, bf16 or f16, not '%s'", word);
    return false;
}

static bool parse_threads(const char *word, int *threads)
{
    char *end;
    long n = strtol(word, &end, 10);
    if (*word && !*end && n >= 1 && n <= 4096) {
        *threads = (int)n;
        return true;
    }
    cli_error("bench: --threads is a number from 1 to 4096, not '%s'", word);
    return false;
}

static bool parse_shape(const char *word, const char **shape)
{
    const char *names[64] = {"all"};
    int count = 1;
    for (const bench_shape *s = bench_shapes; s->name; s++) names[count++] = s->name;
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0) {
            *shape = i ? names[i] : NULL;
            return true;
        }
    const char *near = cli_closest(word, names);
    if (near) cli_error("bench: there is no shape '%s'; did you mean '%s'?", word, near);
    else cli_error("bench: there is no shape '%s'; 'mha bench --help' lists them", word);
    return false;
}

/* 0 to go on, else the exit code plus 1. */
static int parse(int argc, char **argv, request *r)
{
    static const char *const options[] = {"--shape", "--dtype", "--threads", "--isa", "--json", "--help", NULL};
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;
        bool fine = true;
        if (cli_wants_help(argv[i])) {
            help();
            return CLI_OK + 1;
        }
        if (strcmp(argv[i], "--json") == 0) {
            r->json = true;
            continue;
        }
        int which = 0;
        while (which < 4 && strcmp(argv[i], options[which]) != 0) which++;
        if (which == 4) return cli_unknown_option("bench", argv[i], options) + 1;
        if (!(value = value_of(argc, argv, &i))) return CLI_USAGE + 1;
        if (which == 0) fine = parse_shape(value, &r->shape);
        if (which == 1) fine = parse_type(value, &r->type);
        if (which == 2) fine = parse_threads(value, &r->threads);
        if (which == 3) r->isa = value;
        if (!fine) return CLI_USAGE + 1;
    }
    return 0;
}

static void print_json(const bench_shape *s, const request *r, mha_context *ctx, const bench_result *b)
{
    printf("{\"shape\": \"%s\", \"dtype\": \"%s\", \"pass\": \"forward\", \"threads\": %d, \"isa\": \"%s\", "
           "\"ms_median\": %.4f, \"ms_best\": %.4f, \"gflops\": %.2f, \"unfused_ms\": ",
           s->name, mha_type_name(r->type), mha_context_threads(ctx), mha_context_isa(ctx), b->ms_median, b->ms_best,
           b->gflops);
    if (isnan(b->unfused_ms)) printf("null");
    else printf("%.4f", b->unfused_ms);
    printf(", \"scratch_bytes\": %zu, \"max_error\": %.3g}\n", b->scratch_bytes, b->max_error);
}

static void print_row(const bench_shape *s, const bench_result *b)
{
    printf("%-15s%11.3f%11.3f%10.1f", s->name, b->ms_median, b->ms_best, b->gflops);
    if (isnan(b->unfused_ms)) printf("%12s%8s", "-", "-");
    else printf("%12.2f%7.1fx", b->unfused_ms, b->unfused_ms / b->ms_best);
    printf("%10.1e\n", b->max_error);
}

int cmd_bench(int argc, char **argv)
{
    request r = {.type = MHA_FLOAT32};
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
    int status = CLI_OK;
    if (!r.json) {
        printf("%s, %s, %d thread%s, forward\n\n", mha_context_isa(ctx), mha_type_name(r.type),
               mha_context_threads(ctx), mha_context_threads(ctx) == 1 ? "" : "s");
        printf("%-15s%11s%11s%10s%12s%8s%10s\n", "shape", "ms median", "ms best", "GFLOP/s", "unfused ms", "ratio",
               "error");
    }
    for (const bench_shape *s = bench_shapes; s->name; s++) {
        bench_result result;
        if (r.shape && strcmp(r.shape, s->name) != 0) continue;
        if (!bench_forward(&result, ctx, s, r.type, error)) {
            cli_error("bench: %s", error);
            status = CLI_FAILED;
            continue;
        }
        if (r.json) print_json(s, &r, ctx, &result);
        else print_row(s, &result);
        fflush(stdout);
    }
    mha_context_free(ctx);
    return status;
}
