/* A survey as JSON. */
#include "heads_json.h"
#include "json.h"

#include <inttypes.h>
#include <math.h>

static void put_number(FILE *out, const char *name, double x)
{
    fprintf(out, ", \"%s\": ", name);
    if (isfinite(x)) fprintf(out, "%.6g", x);
    else fputs("null", out);
}

static void put_twin(FILE *out, const survey_head *h)
{
    if (h->twin < 0) {
        fputs(", \"twin\": null", out);
        put_number(out, "divergence", NAN);
        put_number(out, "cosine", NAN);
        return;
    }
    fprintf(out, ", \"twin\": %" PRId64, h->twin + 1);
    put_number(out, "divergence", h->divergence);
    put_number(out, "cosine", h->cosine);
}

static void put_head(FILE *out, const survey_head *h)
{
    char quoted[2 * SURVEY_WORDS + 8];
    const char *names[] = {"entropy", "effective", "largest", "distance", "self",   "previous",
                           "next",    "first",     "place",   "position", "content"};
    const double numbers[] = {h->entropy, h->effective, h->largest, h->distance, h->self,   h->previous,
                              h->next,    h->first,     h->place,   h->position, h->content};
    fprintf(out, "\n  {\"block\": %" PRId64 ", \"head\": %" PRId64, h->block + 1, h->head + 1);
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) put_number(out, names[n], numbers[n]);
    put_number(out, "importance", h->importance);
    fprintf(out, ", \"words\": %s", json_quote(quoted, sizeof quoted, h->words));
    put_twin(out, h);
    fputs("}", out);
}

/* H x H numbers in brackets. */
static void put_matrix(FILE *out, const double *numbers, int64_t H)
{
    for (int64_t i = 0; i < H * H; i++) fprintf(out, "%s%.6g", i == 0 ? "[[" : i % H ? ", " : "], [", numbers[i]);
    fputs("]]", out);
}

void heads_json(FILE *out, const survey *s)
{
    const double *pairs = s->divergence;
    fprintf(out, "{\"images\": %" PRId64 ", \"close_images\": %" PRId64 ", \"importance_images\": %" PRId64, s->images,
            s->close_images, s->importance_images);
    fputs(",\n \"heads\": [", out);
    for (int64_t n = 0; n < s->count; n++) {
        if (n) fputs(",", out);
        put_head(out, &s->heads[n]);
    }
    fputs("],\n \"pairs\": [", out);
    for (int64_t l = 0; l < s->blocks; l++) {
        int64_t H = survey_block_heads(s, l);
        fputs(l ? ",\n  " : "\n  ", out);
        put_matrix(out, pairs, H);
        pairs += H * H;
    }
    fputs("]}", out);
}
