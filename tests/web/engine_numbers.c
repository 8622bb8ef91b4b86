/* The engine of text pages, compiled for this machine: what write_engine.mjs compares the engine in WebAssembly with.
 *
 *     engine_numbers MODEL TOKENIZER TEXT [TARGET]
 *
 * TOKENIZER '-': TEXT and TARGET are ids, separated by spaces. Prints one JSON object: ids and words of the text, target, logits, maps and
 * statistics of a run, the inside of every block, what comes next with several settings, and generated tokens. */
#include "web/engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024, NEW_TOKENS = 20 };

typedef struct list {
    int32_t ids[MOST];
    int count;
} list;

static int fail(const char *what)
{
    fprintf(stderr, "engine_numbers: %s: %s\n", what, page_error());
    return 1;
}

static void put_floats(const char *name, const float *numbers, int64_t count)
{
    printf(",\n\"%s\":[", name);
    for (int64_t n = 0; n < count; n++) printf(n ? ",%.9g" : "%.9g", (double)numbers[n]);
    printf("]");
}

static void put_ids(const char *name, const int32_t *ids, int count)
{
    printf(",\n\"%s\":[", name);
    for (int n = 0; n < count; n++) printf(n ? ",%d" : "%d", (int)ids[n]);
    printf("]");
}

/* As lists of bytes, which need no quotes. */
static int put_words(page *p, const list *l)
{
    printf(",\n\"words\":[");
    for (int n = 0; n < l->count; n++) {
        const char *word = page_word(p, l->ids[n], 0);
        if (!word) return fail("word");
        printf(n ? ",[" : "[");
        for (size_t b = 0; word[b]; b++) printf(b ? ",%d" : "%d", (unsigned char)word[b]);
        printf("]");
    }
    printf("]");
    return 0;
}

/* The ids of a text, or those that it lists. */
static int take(list *l, page *p, const char *text, bool encoded, bool target)
{
    if (!encoded) {
        char *end;
        for (l->count = 0; *text && l->count < MOST; text = end + (*end != 0)) {
            l->ids[l->count++] = (int32_t)strtol(text, &end, 10);
            if (end == text) return 1;
        }
        return 0;
    }
    l->count = target ? page_encode_target(p, text, (int)strlen(text)) : page_encode(p, text, (int)strlen(text));
    if (l->count < 0 || l->count > MOST) return fail("encode");
    memcpy(l->ids, page_ids(p), (size_t)l->count * sizeof *l->ids);
    return 0;
}

static int put_run(page *p, const list *ids, const list *target)
{
    int64_t weights = 0, heads = 0, rows = target->count ? target->count : ids->count;
    if (target->count ? page_run_pair(p, ids->ids, ids->count, target->ids, target->count, 2)
                      : page_run_tokens(p, ids->ids, ids->count, 2))
        return fail("run");
    for (int n = 0; n < page_attentions(p); n++) {
        int kind = page_attention_kind(p, n), H = page_attention_heads(p, n);
        int64_t Tq = kind && target->count ? target->count : ids->count, Tk = kind == 2 ? ids->count : Tq;
        weights += H * Tq * Tk, heads += H;
    }
    put_floats("logits", page_numbers(p, PAGE_LOGITS), (p->about.pooled ? 1 : rows) * p->about.classes);
    put_floats("maps", page_numbers(p, PAGE_MAPS), weights);
    put_floats("statistics", page_numbers(p, PAGE_STATISTICS), heads * 4);
    return 0;
}

/* All numbers of the inside of a block, kind after kind; null for scores of keys that are not visible. */
static int put_inside(page *p, const list *ids, const list *target)
{
    printf(",\n\"inside\":[");
    for (int n = 0; n < page_attentions(p); n++) {
        if (page_inside_tokens(p, n, ids->ids, ids->count, target->ids, target->count)) return fail("inside");
        printf(n ? ",[" : "[");
        for (int kind = PAGE_X; kind <= PAGE_Y; kind++) {
            const float *numbers = page_numbers(p, kind);
            printf(kind > PAGE_X ? ",[" : "[");
            for (int i = 0; i < page_count(p, kind); i++) {
                if (i) printf(",");
                if (isinf(numbers[i])) printf("null");
                else printf("%.9g", (double)numbers[i]);
            }
            printf("]");
        }
        printf("]");
    }
    printf("]");
    return 0;
}

static int put_next(page *p, const char *name, int row, const char *settings)
{
    int count = page_next(p, row, settings);
    if (count < 0) return fail("next");
    put_floats(name, page_numbers(p, PAGE_NEXT), (int64_t)2 * count);
    return 0;
}

static int put_generated(page *p, const char *name, const list *ids, const list *target, const char *settings)
{
    int id = 0;
    if (page_generate(p, ids->ids, ids->count, target->ids, target->count, settings)) return fail("generate");
    for (int n = 0; n < NEW_TOKENS && id >= 0; n++) id = page_generate_step(p);
    if (id == -1) return fail("step");
    put_ids(name, page_generated(p), page_generated_count(p));
    page_generate_end(p);
    return 0;
}

int main(int argc, char **argv)
{
    static list ids, target;
    if (argc < 4) return 2;
    bool encoded = strcmp(argv[2], "-") != 0;
    page *p = page_open(argv[1], 0);
    if (!p) return fail(argv[1]);
    if (encoded && page_open_tokenizers(p, argv[2], argc > 4 ? argv[2] : NULL)) return fail(argv[2]);
    if (take(&ids, p, argv[3], encoded, false) || (argc > 4 && take(&target, p, argv[4], encoded, true))) return 1;
    printf("{\"tokens\":%d", ids.count);
    put_ids("ids", ids.ids, ids.count);
    put_ids("target", target.ids, target.count);
    int failed = (encoded && put_words(p, &ids)) || put_run(p, &ids, &target) || put_inside(p, &ids, &target);
    bool predicts = p->about.head && !p->about.pooled;
    int last = (target.count ? target.count : ids.count) - 1;
    if (predicts && !failed)
        failed = put_next(p, "next", last, "") || put_next(p, "drawn", last, "temperature=0.8\ntop_k=40\ntop_p=0.9");
    if (predicts && !failed && (target.count || p->about.causal))
        failed = put_generated(p, "greedy", &ids, &target, "temperature=0") ||
                 put_generated(p, "sampled", &ids, &target, "temperature=0.8\ntop_k=40\nseed=3");
    puts("}");
    page_close(p);
    return failed;
}
