/* mha bench --pass scaling: the sizes one after another, as a table or as JSON, and the exponents. */
#include "cli/bench/print.h"
#include "cli/common/options.h"

#include <math.h>
#include <stdio.h>

enum { FITTED_FROM = 512 }; /* below, calls and edges take a good part of the time */

void bench_list_sizes(int64_t longest)
{
    for (const bench_size *s = bench_sizes; s->axis; s++)
        if (s->T <= longest)
            printf("scaling %c T=%lld,H=%lld,D=%lld\n", s->axis, (long long)s->T, (long long)s->H, (long long)s->D);
}

static double along(const bench_size *s) { return (double)(s->axis == 'T' ? s->T : s->axis == 'H' ? s->H : s->D); }

static double exponent(const bench_curves *c, char axis, bench_way way, bool memory)
{
    double x[BENCH_SIZES], y[BENCH_SIZES];
    int count = 0;
    for (int n = 0; n < c->count; n++) {
        const bench_growth *g = &c->growth[n];
        if (c->size[n].axis != axis || (axis == 'T' && c->size[n].T < FITTED_FROM)) continue;
        x[count] = along(&c->size[n]);
        y[count++] = !memory ? g->ms[way] : g->extra[way];
    }
    return bench_exponent(x, y, count);
}

double bench_time_exponent(const bench_curves *c, char axis, bench_way way) { return exponent(c, axis, way, false); }
double bench_memory_exponent(const bench_curves *c, char axis, bench_way way) { return exponent(c, axis, way, true); }

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void print_number(const char *key, const char *format, double x)
{
    printf(", \"%s\": ", key);
    if (isfinite(x)) printf(format, x);
    else printf("null");
}

static void print_json(const bench_setting *set, const bench_size *s, const bench_growth *g)
{
    for (int way = 0; way < BENCH_WAYS; way++) {
        bool left_out = way == BENCH_UNFUSED && g->too_large;
        printf("{\"pass\": \"scaling\", \"axis\": \"%c\", \"way\": \"%s\", \"T\": %lld, \"H\": %lld, \"D\": %lld, "
               "\"dtype\": \"%s\", \"threads\": %d, \"isa\": \"%s\"",
               s->axis, bench_way_names[way], (long long)s->T, (long long)s->H, (long long)s->D,
               mha_type_name(set->type), mha_context_threads(set->ctx), mha_context_isa(set->ctx));
        print_number("ms", "%.6g", g->ms[way]);
        print_number("extra_bytes", "%.0f", g->extra[way]);
        print_number("array_bytes", "%.0f", g->arrays);
        print_number("max_error", "%.3g", g->error);
        printf(", \"left_out\": %s}\n", left_out ? "true" : "false");
    }
}

static void print_json_exponents(const bench_curves *c)
{
    for (int way = 0; way < BENCH_WAYS; way++) {
        printf("{\"pass\": \"scaling\", \"exponent_of\": \"T\", \"way\": \"%s\"", bench_way_names[way]);
        print_number("time_exponent", "%.3f", bench_time_exponent(c, 'T', (bench_way)way));
        print_number("memory_exponent", "%.3f", bench_memory_exponent(c, 'T', (bench_way)way));
        printf("}\n");
    }
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static const char *bytes_in_words(char *text, size_t room, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    int unit = 0;
    if (!isfinite(bytes)) return "-";
    for (; bytes >= 1024 && unit < 3; unit++) bytes /= 1024;
    snprintf(text, room, unit && bytes < 10 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

static void print_head(const bench_setting *set)
{
    int threads = mha_context_threads(set->ctx);
    printf("attention, %s, %s, %d thread%s\nunfused: %s\n", mha_context_isa(set->ctx), mha_type_name(set->type),
           threads, threads == 1 ? "" : "s", set->blas ? set->blas->name : "not measured");
    printf("\n%7s%5s%5s%13s%14s%12s%12s%12s\n", "", "", "", "fused", "one by one", "unfused", "fused", "unfused");
    printf("%7s%5s%5s%13s%14s%12s%12s%12s\n", "T", "H", "D", "ms", "time", "time", "memory", "memory");
}

static void print_row(const bench_size *s, const bench_growth *g)
{
    char fused[20], unfused[20], ratio[2][20] = {"-", "-"};
    for (int way = BENCH_ONE_BY_ONE; way <= BENCH_UNFUSED; way++)
        if (isfinite(g->ms[way])) snprintf(ratio[way - 1], sizeof ratio[0], "%.2fx", g->ms[way] / g->ms[BENCH_FUSED]);
    if (g->too_large) snprintf(ratio[1], sizeof ratio[1], "too large");
    printf("%7lld%5lld%5lld%13.3f%14s%12s%12s%12s\n", (long long)s->T, (long long)s->H, (long long)s->D,
           g->ms[BENCH_FUSED], ratio[0], ratio[1], bytes_in_words(fused, sizeof fused, g->extra[BENCH_FUSED]),
           bytes_in_words(unfused, sizeof unfused, g->extra[BENCH_UNFUSED]));
    fflush(stdout);
}

static void print_exponents(const bench_curves *c)
{
    static const char *const names[] = {"fused", "one by one", "unfused"};
    printf("\nFitted from T = %d on:\n", FITTED_FROM);
    for (int way = 0; way < BENCH_WAYS; way++) {
        double time = bench_time_exponent(c, 'T', (bench_way)way);
        double memory = round(100 * bench_memory_exponent(c, 'T', (bench_way)way)) / 100 + 0.0; /* no -0.00 */
        if (isfinite(time)) printf("  %-12s time grows as T^%.2f, memory as T^%.2f\n", names[way], time, memory);
    }
    printf("Memory is what is allocated beside q, k, v and the result, which grow as T.\n");
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static bool is_sound(const bench_setting *set, const bench_size *s, const bench_growth *g)
{
    if (!(g->error > bench_tolerance(set->type))) return true;
    return cli_refuse("scaling, T %lld, H %lld, D %lld: results differ by %.2g of the largest value; at most %.2g "
                      "is allowed",
                      (long long)s->T, (long long)s->H, (long long)s->D, g->error, bench_tolerance(set->type));
}

static int draw_chart(const bench_setting *set, const bench_curves *c, const char *path)
{
    char about[120], error[400];
    int threads = mha_context_threads(set->ctx);
    snprintf(about, sizeof about, "%s, %s, %d thread%s; unfused: %s", mha_context_isa(set->ctx),
             mha_type_name(set->type), threads, threads == 1 ? "" : "s", set->blas ? set->blas->name : "not measured");
    if (bench_draw_scaling(path, c, about, error, sizeof error)) return CLI_OK;
    cli_error("%s", error);
    return CLI_FAILED;
}

int bench_run_scaling(const bench_setting *set, int64_t longest, const char *chart, bool json)
{
    bench_curves c = {0};
    int status = CLI_OK;
    if (!json) print_head(set);
    for (const bench_size *s = bench_sizes; s->axis && c.count < BENCH_SIZES; s++) {
        char error[200];
        bench_growth *g = &c.growth[c.count];
        if (s->T > longest) continue;
        if (!bench_scaling(g, set, s, error)) {
            cli_refuse("%s", error);
            return CLI_FAILED;
        }
        if (c.count && !json && c.size[c.count - 1].axis != s->axis) printf("\n");
        c.size[c.count++] = *s;
        if (json) print_json(set, s, g);
        else print_row(s, g);
        if (!is_sound(set, s, g)) status = CLI_FAILED;
    }
    if (json) print_json_exponents(&c);
    else print_exponents(&c);
    if (chart) status |= draw_chart(set, &c, chart);
    return status;
}
