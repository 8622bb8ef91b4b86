/* Embeddings on the terminal, with their cosines, or as JSON. */
#include "cli/embed/embed.h"
#include "io/printable.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 4, TABLE = 10, NUMBER = 9, LABEL = 5, TEXT = 22 }; /* numbers of a line; texts of the table; columns */
_Static_assert(LABEL + NUMBER * SHOWN + 4 + 10 + TEXT <= 80 && LABEL + 7 * TABLE <= 80, "both fit the screen");

static void put_text(const term *t, const char *text)
{
    char shown[1024], shortened[TEXT * 4 + 1];
    nn_printable(shown, sizeof shown, text);
    size_t n = term_fitting(shown, term_columns(shown) > TEXT ? TEXT - 3 : TEXT);
    if (n >= sizeof shortened) n = sizeof shortened - 1;
    memcpy(shortened, shown, n);
    shortened[n] = 0;
    printf("%s%s%s%s", term_style_on(t, TERM_FAINT), shortened, shown[n] ? "..." : "", term_style_on(t, TERM_PLAIN));
}

static double cosine(const float *a, const float *b, int64_t M)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < M; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static void put_cosines(const term *t, const embed_results *e)
{
    char label[24];
    printf("\n%scosines%s\n%*s", term_style_on(t, TERM_BOLD), term_style_on(t, TERM_PLAIN), LABEL, "");
    for (int64_t n = 0; n <= e->texts.count; n++) {
        for (int64_t k = 0; k < e->texts.count; k++) {
            snprintf(label, sizeof label, "%lld", (long long)k + 1);
            if (!n) term_right(t, 7, TERM_FAINT, label);
            else
                printf("%7.3f",
                       cosine(e->values + (n - 1) * e->about.width, e->values + k * e->about.width, e->about.width));
        }
        printf("\n");
        if (n < e->texts.count) printf("%*lld", LABEL, (long long)n + 1);
    }
}

void embed_print(const embed_request *r, const embed_results *e)
{
    term t = term_detect(r->when);
    printf("%lld text%s, %lld numbers each\n", (long long)e->texts.count, e->texts.count == 1 ? "" : "s",
           (long long)e->about.width);
    for (int64_t n = 0; n < e->texts.count; n++) {
        printf("%*lld", LABEL, (long long)n + 1);
        for (int64_t i = 0; i < SHOWN && i < e->about.width; i++)
            printf("%*.4f", NUMBER, (double)e->values[n * e->about.width + i]);
        printf("%s  ", e->about.width > SHOWN ? " ..." : "");
        put_text(&t, e->texts.all[n]);
        printf("\n");
    }
    if (e->texts.count > 1 && e->texts.count <= TABLE) put_cosines(&t, e);
}

bool embed_print_json(const embed_request *r, const embed_results *e)
{
    nn_buffer out = {0};
    int64_t all = 0;
    for (int64_t n = 0; n < e->texts.count; n++) all += e->lengths[n];
    nn_buffer_puts(&out, "{\n  \"model\": ");
    language_quote(&out, r->model, strlen(r->model));
    nn_buffer_printf(&out, ",\n  \"pool\": \"%s\",\n  \"prompt\": ", e->about.pool);
    language_quote(&out, e->about.prompt, strlen(e->about.prompt));
    nn_buffer_printf(&out,
                     ",\n  \"normalised\": %s,\n  \"width\": %lld,\n  \"tokens\": %lld,\n"
                     "  \"seconds\": %.6f,\n  \"tokens_per_second\": %.2f,\n  \"embeddings\": [",
                     e->about.normalised ? "true" : "false", (long long)e->about.width, (long long)all, e->seconds,
                     e->seconds > 0 ? (double)all / e->seconds : 0);
    for (int64_t n = 0; n < e->texts.count; n++) {
        nn_buffer_puts(&out, n ? ",\n    {\"text\": " : "\n    {\"text\": ");
        language_quote(&out, e->texts.all[n], strlen(e->texts.all[n]));
        nn_buffer_printf(&out, ", \"tokens\": %lld, \"values\": [", (long long)e->lengths[n]);
        for (int64_t i = 0; i < e->about.width; i++)
            nn_buffer_printf(&out, i ? ", %.9g" : "%.9g", (double)e->values[n * e->about.width + i]);
        nn_buffer_puts(&out, "]}");
    }
    nn_buffer_puts(&out, "\n  ]\n}\n");
    return language_put(&out);
}
