/* Runs the cases of live.py and compares with its answers:
 *
 *     generate_replay FILE
 *
 * Prints a line for each case that differs, and closes with 'N passed, N failed'. */
#include "generate/beams.h"
#include "generate/sampling.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *file;
static char what[240]; /* that differs in this case, or "" */

static void read_bytes(void *to, size_t size)
{
    if (fread(to, 1, size, file) == size) return;
    puts("the file of cases is too short");
    exit(1);
}

static int32_t read_int(void)
{
    int32_t value;
    read_bytes(&value, sizeof value);
    return value;
}

static float read_float(void)
{
    float value;
    read_bytes(&value, sizeof value);
    return value;
}

static void *read_list(int64_t *count)
{
    *count = read_int();
    void *list = malloc((size_t)*count * 4 + 4);
    if (!list) exit(1);
    read_bytes(list, (size_t)*count * 4);
    return list;
}

static nn_tokens read_tokens(void)
{
    nn_tokens t;
    t.ids = read_list(&t.count);
    return t;
}

static nn_rules read_rules(int64_t **ends)
{
    nn_rules r = {.encoder_penalty = read_float()};
    r.repetition_penalty = read_float();
    r.no_repeat_ngram = read_int();
    r.encoder_ngram = read_int();
    r.banned = read_tokens();
    nn_tokens places = read_tokens();
    *ends = malloc((size_t)(places.count + 1) * sizeof **ends);
    for (int64_t n = 0; n < places.count; n++) (*ends)[n] = places.ids[n];
    r.banned_ends = *ends;
    r.banned_count = places.count;
    free((void *)places.ids);
    r.end = read_tokens();
    r.min_length = read_int();
    r.min_new_tokens = read_int();
    r.max_length = read_int();
    r.forced_bos = read_int();
    r.forced_end = read_tokens();
    r.suppressed = read_tokens();
    r.suppressed_first = read_tokens();
    return r;
}

static void free_rules(nn_rules *r, int64_t *ends)
{
    const nn_tokens lists[] = {r->banned, r->end, r->forced_end, r->suppressed, r->suppressed_first};
    for (int n = 0; n < 5; n++) free((void *)lists[n].ids);
    free(ends);
}

static void differ(const char *name, int64_t n, double got, double want)
{
    if (!what[0]) snprintf(what, sizeof what, "%s [%lld] is %.9g, must be %.9g", name, (long long)n, got, want);
}

static void check_rules(void)
{
    int64_t V = read_int(), prompt = read_int(), count, *ends;
    nn_history h = {.prompt = prompt};
    h.tokens = read_list(&h.count);
    h.encoder = read_tokens();
    nn_rules r = read_rules(&ends);
    nn_marks marks;
    if (!nn_marks_create(&marks, V)) exit(1);
    float *scores = read_list(&count), *want = read_list(&count);
    bool changed = false;
    for (int64_t n = 0; n < V; n++) changed = changed || scores[n] != want[n];
    if (changed && !nn_rules_matter(&r, &h)) differ("nn_rules_matter", 0, 0, 1);
    nn_rules_apply(&r, scores, V, &h, &marks);
    for (int64_t n = 0; n < V; n++)
        if (scores[n] != want[n] && !(fabsf(scores[n] - want[n]) <= 1e-6f * fabsf(want[n])))
            differ("score", n, (double)scores[n], (double)want[n]);
    nn_marks_free(&marks);
    free_rules(&r, ends);
    free((void *)h.tokens);
    free((void *)h.encoder.ids);
    free(scores);
    free(want);
}

static void check_filter(void)
{
    int64_t V = read_int(), count;
    nn_choice_options o = {.top_k = read_int()};
    o.temperature = read_float();
    o.top_p = read_float();
    o.min_p = read_float();
    float *scores = read_list(&count), *want = read_list(&count), *got = calloc((size_t)V, sizeof *got);
    nn_choice c;
    double sum;
    if (!got || !nn_choice_create(&c, V)) exit(1);
    int64_t left = nn_choice_filter(&c, scores, &o, &sum);
    for (int64_t n = 0; n < left; n++) got[c.list[n].id] = (float)((double)c.list[n].score / sum);
    for (int64_t n = 0; n < V; n++)
        if (!(fabsf(got[n] - want[n]) <= 2e-6f + 1e-5f * want[n]) || (got[n] > 1e-12f) != (want[n] > 1e-12f))
            differ("probability", n, (double)got[n], (double)want[n]);
    nn_choice_free(&c);
    free(scores);
    free(want);
    free(got);
}

/* Logits of the last token of each beam, from the table. */
static void look_up(float *logits, const nn_beams_options *o, const float *table, int64_t V, int64_t places,
                    int64_t length, const int32_t *last)
{
    int64_t at = length - 1 < places ? length - 1 : places - 1;
    for (int64_t n = 0; n < o->beams; n++)
        memcpy(logits + n * V, table + (at * V + last[n]) * V, (size_t)V * sizeof *logits);
}

static void search(nn_beams *b, const nn_beams_options *o, const nn_rules *r, nn_tokens prompt, const float *table,
                   int64_t V)
{
    float *logits = malloc((size_t)(o->beams * V) * sizeof *logits);
    const char *why;
    nn_marks marks;
    if (!logits || !nn_marks_create(&marks, V)) exit(1);
    nn_beams_begin(b, prompt.ids, prompt.count, r->max_length);
    for (int64_t length = prompt.count; !nn_beams_ended(b) && !what[0]; length++) {
        bool first = length == prompt.count;
        int32_t last[64];
        for (int64_t n = 0; n < o->beams; n++) last[n] = first ? prompt.ids[length - 1] : nn_beams_next(b)[n];
        look_up(logits, o, table, V, r->max_length, length, last);
        if (!nn_beams_step(b, logits, first, r, &marks, &why)) snprintf(what, sizeof what, "%s", why);
    }
    nn_marks_free(&marks);
    free(logits);
}

static void compare(const nn_beams *b, const nn_beams_options *o)
{
    int64_t wanted = read_int(), count, got_count;
    for (int64_t n = 0; n < wanted; n++) {
        int32_t *want = read_list(&count);
        float score = read_float(), got_score = 0;
        const int32_t *got = nn_beams_best(b, n, &got_count, &got_score);
        if (score < -1e6f) got = NULL; /* fewer have finished than there are beams: the library fills up with others */
        else if (!got) differ("sequence", n, 0, 1);
        if (got && !(fabsf(got_score - score) <= 1e-5f * (1 + fabsf(score))))
            differ("score of sequence", n, (double)got_score, (double)score);
        for (int64_t t = 0; got && t < count; t++) {
            bool padding = t >= got_count;
            int32_t token = padding ? o->end.count ? o->end.ids[0] : 0 : got[t];
            if (token != want[t]) differ("token", n * 1000 + t, token, want[t]);
        }
        if (got && got_count > count) differ("length of sequence", n, (double)got_count, (double)count);
        free(want);
    }
}

static void check_beams(void)
{
    int64_t V = read_int(), count, *ends;
    nn_beams_options o = {.beams = read_int()};
    o.early = (nn_early_stopping)read_int();
    o.renormalize = read_int();
    int64_t longest = read_int();
    o.length_penalty = read_float();
    nn_tokens prompt = read_tokens();
    nn_rules r = read_rules(&ends);
    float *table = read_list(&count);
    o.end = r.end;
    nn_beams *b = nn_beams_create(&o, V, longest);
    if (!b) exit(1);
    search(b, &o, &r, prompt, table, V);
    compare(b, &o);
    nn_beams_free(b);
    free_rules(&r, ends);
    free((void *)prompt.ids);
    free(table);
}

int main(int count, char **arguments)
{
    static void (*const checks[])(void) = {check_rules, check_filter, check_beams};
    static const char *const names[] = {"rules", "filter", "beams"};
    int passed = 0, failed = 0;
    if (count != 2 || !(file = fopen(arguments[1], "rb"))) return 2;
    for (int kind, n = 0; (kind = read_int()) != 0; n++) {
        what[0] = 0;
        checks[kind - 1]();
        if (what[0]) printf("  FAIL  case %d, %s: %s\n", n, names[kind - 1], what);
        if (what[0]) failed++;
        else passed++;
    }
    fclose(file);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
