/* A survey as JSON. */
#include "cli/heads/json.h"
#include "io/json.h"

#include <inttypes.h>
#include <math.h>

static void put_number(nn_buffer *out, const char *name, double x)
{
    nn_buffer_printf(out, ", \"%s\": ", name);
    if (isfinite(x)) nn_buffer_printf(out, "%.6g", x);
    else nn_buffer_puts(out, "null");
}

static void put_nearest(nn_buffer *out, const mha_survey_head *h)
{
    if (h->nearest < 0) {
        nn_buffer_puts(out, ", \"twin\": null");
        put_number(out, "divergence", NAN);
        put_number(out, "cosine", NAN);
        return;
    }
    nn_buffer_printf(out, ", \"twin\": %" PRId64, h->nearest);
    put_number(out, "divergence", h->divergence);
    put_number(out, "cosine", h->cosine);
}

static void put_head(nn_buffer *out, const mha_survey_head *h)
{
    char quoted[200];
    const char *names[] = {"entropy", "effective", "largest", "distance", "self",   "previous",
                           "next",    "first",     "place",   "position", "content"};
    const double numbers[] = {h->entropy, h->effective, h->largest, h->distance, h->self,   h->previous,
                              h->next,    h->first,     h->place,   h->position, h->content};
    nn_buffer_printf(out, "\n  {\"block\": %" PRId64 ", \"head\": %" PRId64, h->block, h->head);
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) put_number(out, names[n], numbers[n]);
    put_number(out, "importance", h->importance);
    nn_buffer_printf(out, ", \"words\": %s", nn_json_quote(quoted, sizeof quoted, h->words));
    put_nearest(out, h);
    nn_buffer_puts(out, "}");
}

/* H x H numbers in brackets. */
static void put_matrix(nn_buffer *out, const double *numbers, int64_t H)
{
    for (int64_t i = 0; i < H * H; i++)
        nn_buffer_printf(out, "%s%.6g", i == 0 ? "[[" : i % H ? ", " : "], [", numbers[i]);
    nn_buffer_puts(out, "]]");
}

void heads_json(nn_buffer *out, const survey *s)
{
    nn_buffer_printf(out, "{\"images\": %" PRId64 ", \"close_images\": %" PRId64 ", \"importance_images\": %" PRId64,
                     s->info.images, s->info.close_images, s->info.importance_images);
    nn_buffer_puts(out, ",\n \"heads\": [");
    for (int64_t n = 0; n < s->info.heads; n++) {
        if (n) nn_buffer_puts(out, ",");
        put_head(out, &s->heads[n]);
    }
    nn_buffer_puts(out, "],\n \"pairs\": [");
    for (int64_t l = 0; l < s->info.blocks; l++) {
        nn_buffer_puts(out, l ? ",\n  " : "\n  ");
        put_matrix(out, mha_survey_divergences(s->of, l), survey_block_heads(s, l));
    }
    nn_buffer_puts(out, "]}");
}
