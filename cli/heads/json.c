/* A survey as JSON. */
#include "cli/heads/json.h"
#include "io/json.h"

#include <inttypes.h>
#include <math.h>

static void put_number(buffer *out, const char *name, double x)
{
    buffer_printf(out, ", \"%s\": ", name);
    if (isfinite(x)) buffer_printf(out, "%.6g", x);
    else buffer_puts(out, "null");
}

static void put_twin(buffer *out, const survey_head *h)
{
    if (h->twin < 0) {
        buffer_puts(out, ", \"twin\": null");
        put_number(out, "divergence", NAN);
        put_number(out, "cosine", NAN);
        return;
    }
    buffer_printf(out, ", \"twin\": %" PRId64, h->twin + 1);
    put_number(out, "divergence", h->divergence);
    put_number(out, "cosine", h->cosine);
}

static void put_head(buffer *out, const survey_head *h)
{
    char quoted[2 * SURVEY_WORDS + 8];
    const char *names[] = {"entropy", "effective", "largest", "distance", "self",   "previous",
                           "next",    "first",     "place",   "position", "content"};
    const double numbers[] = {h->entropy, h->effective, h->largest, h->distance, h->self,   h->previous,
                              h->next,    h->first,     h->place,   h->position, h->content};
    buffer_printf(out, "\n  {\"block\": %" PRId64 ", \"head\": %" PRId64, h->block + 1, h->head + 1);
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) put_number(out, names[n], numbers[n]);
    put_number(out, "importance", h->importance);
    buffer_printf(out, ", \"words\": %s", json_quote(quoted, sizeof quoted, h->words));
    put_twin(out, h);
    buffer_puts(out, "}");
}

/* H x H numbers in brackets. */
static void put_matrix(buffer *out, const double *numbers, int64_t H)
{
    for (int64_t i = 0; i < H * H; i++) buffer_printf(out, "%s%.6g", i == 0 ? "[[" : i % H ? ", " : "], [", numbers[i]);
    buffer_puts(out, "]]");
}

void heads_json(buffer *out, const survey *s)
{
    const double *pairs = s->divergence;
    buffer_printf(out, "{\"images\": %" PRId64 ", \"close_images\": %" PRId64 ", \"importance_images\": %" PRId64,
                  s->images, s->close_images, s->importance_images);
    buffer_puts(out, ",\n \"heads\": [");
    for (int64_t n = 0; n < s->count; n++) {
        if (n) buffer_puts(out, ",");
        put_head(out, &s->heads[n]);
    }
    buffer_puts(out, "],\n \"pairs\": [");
    for (int64_t l = 0; l < s->blocks; l++) {
        int64_t H = survey_block_heads(s, l);
        buffer_puts(out, l ? ",\n  " : "\n  ");
        put_matrix(out, pairs, H);
        pairs += H * H;
    }
    buffer_puts(out, "]}");
}
