/* mha bench: how fast the library is here, verified first, beside what the machine could do and what a peer does. */
#include "cli/bench/print.h"
#include "cli/common/cli.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS_MOST = 64 };

typedef struct request {
    const char *shape, *isa, *save; /* NULL: all of them, the best one, nowhere */
    mha_type type;
    int threads, pass; /* BENCH_PASSES: all of them */
    const bench_blas *blas;
    double seconds;
    int64_t batch; /* 0: the model's own */
    bool peer_chosen, json, list;
} request;

/* ---- Options ----------------------------------------------------------------------------------------------------- */

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

static bool parse_seconds(const char *word, request *r)
{
    char *end;
    r->seconds = strtod(word, &end);
    if (*word && !*end && r->seconds >= 0 && r->seconds <= 3600) return true;
    cli_error("bench: --seconds is a number from 0 to 3600, not '%s'", word);
    return false;
}

static bool parse_batch(const char *word, request *r)
{
    char *end;
    long n = strtol(word, &end, 10);
    r->batch = n;
    if (*word && !*end && n >= 1 && n <= 65536) return true;
    cli_error("bench: --batch is a number from 1 to 65536, not '%s'", word);
    return false;
}

static bool parse_shape(const char *word, request *r)
{
    const char *names[JOBS_MOST] = {"all"};
    int count = 1, index;
    for (const bench_shape *s = bench_shapes; s->name; s++) names[count++] = s->name;
    for (const bench_product *s = bench_products; s->name; s++) names[count++] = s->name;
    for (const bench_layer *s = bench_layers; s->name; s++) names[count++] = s->name;
    for (const bench_model *s = bench_models; s->name; s++) names[count++] = s->name;
    if (!parse_word("--shape", word, names, &index)) return false;
    r->shape = index ? names[index] : NULL;
    return true;
}

static bool parse_pass(const char *word, request *r)
{
    const char *names[BENCH_PASSES + 2] = {NULL};
    memcpy(names, bench_pass_names, BENCH_PASSES * sizeof *names);
    names[BENCH_PASSES] = "all";
    return parse_word("--pass", word, names, &r->pass);
}

static bool parse_isa(const char *word, request *r)
{
    r->isa = word;
    return true;
}

static bool parse_peer(const char *word, request *r)
{
    static const char *const names[] = {"openblas", "loop", "none", NULL};
    int index;
    if (!parse_word("--peer", word, names, &index)) return false;
    r->peer_chosen = true;
    r->blas = index == 0 ? bench_openblas() : index == 1 ? bench_loops() : NULL;
    if (index > 0 || r->blas) return true;
    cli_error("bench: --peer openblas: libopenblas.so.0 is not installed; './dev setup bench' does it");
    return false;
}

static bool parse_save(const char *word, request *r)
{
    DIR *folder = opendir(word);
    if (!folder) {
        cli_error("bench: --save: cannot open the folder '%s': %s", word, strerror(errno));
        return false;
    }
    closedir(folder);
    r->save = word;
    return true;
}

/* 0 to go on, else the exit code plus 1. */
static int parse(int argc, char **argv, request *r)
{
    static const char *const options[] = {"--shape",   "--dtype", "--threads", "--pass", "--isa",  "--peer", "--save",
                                          "--seconds", "--batch", "--json",    "--list", "--help", NULL};
    static bool (*const parsers[])(const char *, request *) = {parse_shape, parse_type,    parse_threads,
                                                               parse_pass,  parse_isa,     parse_peer,
                                                               parse_save,  parse_seconds, parse_batch};
    enum { VALUES = sizeof parsers / sizeof *parsers };
    for (int i = 1; i < argc; i++) {
        if (cli_wants_help(argv[i])) {
            bench_help();
            return CLI_OK + 1;
        }
        bool json = strcmp(argv[i], "--json") == 0, list = strcmp(argv[i], "--list") == 0;
        r->json |= json;
        r->list |= list;
        if (json || list) continue;
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

/* ---- What to measure --------------------------------------------------------------------------------------------- */

static int add(bench_job *jobs, int count, const request *r, bench_job job)
{
    if (r->pass != BENCH_PASSES && r->pass != (int)job.pass) return count;
    if (r->shape && strcmp(r->shape, job.name) != 0) return count;
    jobs[count] = job;
    return count + 1;
}

/* Whether nothing but models was asked for. */
static bool is_model(const request *r)
{
    bool named = false;
    for (const bench_model *s = bench_models; s->name && r->shape; s++) named |= strcmp(r->shape, s->name) == 0;
    return named || (!r->shape && (r->pass == BENCH_TRAIN || r->pass == BENCH_INFER));
}

/* How many lines the table will have; 0, having said so, if the pass and the shape do not go together. */
static int plan(bench_job jobs[JOBS_MOST], const request *r)
{
    int n = 0;
    for (const bench_shape *s = bench_shapes; s->name; s++)
        n = add(jobs, n, r, (bench_job){bench_is_decode(s) ? BENCH_DECODE : BENCH_FORWARD, s->name, s});
    for (const bench_shape *s = bench_shapes; s->name; s++)
        if (!bench_is_decode(s)) n = add(jobs, n, r, (bench_job){BENCH_BACKWARD, s->name, s});
    for (const bench_product *s = bench_products; s->name; s++)
        n = add(jobs, n, r, (bench_job){BENCH_GEMM, s->name, s});
    for (const bench_layer *s = bench_layers; s->name; s++) n = add(jobs, n, r, (bench_job){BENCH_LAYER, s->name, s});
    for (const bench_model *s = bench_models; s->name && r->type != MHA_FLOAT16; s++) {
        n = add(jobs, n, r, (bench_job){BENCH_TRAIN, s->name, s});
        n = add(jobs, n, r, (bench_job){BENCH_INFER, s->name, s});
    }
    if (!n && r->type == MHA_FLOAT16 && is_model(r))
        cli_error("bench: models are measured in f32 and bf16, not in f16");
    else if (!n)
        cli_error("bench: %s has no pass '%s'; 'mha bench --list' has them", r->shape, bench_pass_names[r->pass]);
    return n;
}

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

/* Whether what was computed is right: NAN, where nobody looked, is not held against it. */
static bool sound(const bench_job *job, mha_type type, const char *judge, double error)
{
    if (!(error > bench_tolerance(type))) return true;
    cli_error("bench: %s %s is off by %.2g of the largest value, says %s; at most %.2g is expected",
              bench_pass_names[job->pass], job->name, error, judge, bench_tolerance(type));
    return false;
}

/* Returns an exit code. */
static int measure(const bench_setting *set, const bench_limits *limits, const bench_job *job, bool json)
{
    char error[200];
    bench_result result;
    bool done = job->pass == BENCH_GEMM       ? bench_gemm(&result, set, job->shape, error)
                : job->pass == BENCH_TRAIN    ? bench_train(&result, set, job->shape, error)
                : job->pass == BENCH_INFER    ? bench_infer(&result, set, job->shape, error)
                : job->pass == BENCH_LAYER    ? bench_layer_forward(&result, set, job->shape, error)
                : job->pass == BENCH_BACKWARD ? bench_backward(&result, set, job->shape, error)
                                              : bench_forward(&result, set, job->shape, error);
    if (!done) {
        cli_error("bench: %s", error);
        return CLI_FAILED;
    }
    if (json) bench_print_json(set, limits, job, &result);
    else bench_print_row(limits, job, &result);
    fflush(stdout);
    bool right = sound(job, set->type, "the oracle", result.max_error);
    if (set->blas) right &= sound(job, set->type, set->blas->name, result.peer_error);
    return right ? CLI_OK : CLI_FAILED;
}

static mha_context *make_context(const request *r)
{
    char error[200];
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    mha_context *ctx = NULL;
    options.threads = r->threads;
    options.isa = r->isa;
    options.error = error;
    options.error_size = sizeof error;
    if (mha_context_create(&ctx, &options)) cli_error("bench: %s", error);
    return ctx;
}

int cmd_bench(int argc, char **argv)
{
    request r = {.type = MHA_FLOAT32, .pass = BENCH_PASSES, .seconds = 1};
    bench_job jobs[JOBS_MOST];
    int stop = parse(argc, argv, &r), count, status = CLI_OK;
    if (stop) return stop - 1;
    if (!(count = plan(jobs, &r))) return CLI_USAGE;
    if (r.list) {
        for (int i = 0; i < count; i++) printf("%s %s\n", bench_pass_names[jobs[i].pass], jobs[i].name);
        return CLI_OK;
    }
    bench_setting set = {make_context(&r), r.type, r.blas, r.save, r.seconds, r.batch};
    if (!set.ctx) return CLI_USAGE;
    if (!r.peer_chosen) set.blas = bench_openblas() ? bench_openblas() : bench_loops();
    bench_limits limits = bench_measure_limits(set.ctx, set.type);
    if (isnan(limits.read_gbytes)) {
        cli_error("bench: no memory to measure how fast it is read");
        mha_context_free(set.ctx);
        return CLI_FAILED;
    }
    if (!r.json) bench_print_head(&set, &limits);
    for (int i = 0; i < count; i++) status |= measure(&set, &limits, &jobs[i], r.json);
    mha_context_free(set.ctx);
    return status;
}
