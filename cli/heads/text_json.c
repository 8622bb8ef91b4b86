/* A survey of a text model as JSON. */
#include "cli/heads/text.h"
#include "io/json.h"

#include <inttypes.h>
#include <math.h>

static void put_number(nn_buffer *out, const char *name, double x)
{
    nn_buffer_printf(out, ", \"%s\": ", name);
    if (isfinite(x)) nn_buffer_printf(out, "%.6g", x);
    else nn_buffer_puts(out, "null");
}

static void put_head(nn_buffer *out, const mha_text_head *h)
{
    char quoted[200];
    const struct {
        const char *name;
        double x;
    } numbers[] = {
        {"entropy", h->entropy},   {"uniform", h->uniform},   {"effective", h->effective}, {"largest", h->largest},
        {"distance", h->distance}, {"self", h->self},         {"previous", h->previous},   {"next", h->next},
        {"first", h->first},       {"last", h->last},         {"duplicate", h->duplicate}, {"induction", h->induction},
        {"chance", h->chance},     {"position", h->position}, {"content", h->content},     {"monotone", h->monotone}};
    nn_buffer_printf(out, "\n  {\"attention\": \"%s\", \"block\": %" PRId64 ", \"head\": %" PRId64,
                     h->cross     ? "cross"
                     : h->decoder ? "decoder"
                                  : "encoder",
                     h->block, h->head);
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) put_number(out, numbers[n].name, numbers[n].x);
    nn_buffer_printf(out, ", \"words\": %s}", nn_json_quote(quoted, sizeof quoted, h->words));
}

void text_json(nn_buffer *out, const text_survey *s)
{
    nn_buffer_printf(out, "{\"tokens\": %" PRId64 ", \"windows\": %" PRId64 ", \"window\": ", s->tokens,
                     s->info.windows);
    if (s->window) nn_buffer_printf(out, "%" PRId64, s->window);
    else nn_buffer_puts(out, "null");
    nn_buffer_printf(out, ", \"repeats\": %" PRId64 ", \"repeat_length\": %" PRId64, s->info.repeats,
                     s->info.repeat_length);
    nn_buffer_puts(out, ",\n \"heads\": [");
    for (int64_t n = 0; n < s->info.heads; n++) {
        if (n) nn_buffer_puts(out, ",");
        put_head(out, &s->heads[n]);
    }
    nn_buffer_puts(out, "]}");
}
