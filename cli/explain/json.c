/* All numbers as JSON. Nine digits give back every float32; a score of -infinity, which JSON cannot express, is null. */
#include "cli/explain/explain.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>

static void put_text(nn_buffer *out, const char *text)
{
    char quoted[6 * EXPLAIN_BYTES + 16];
    nn_buffer_puts(out, nn_json_quote(quoted, sizeof quoted, text));
}

/* An array (rows,columns) whose elements lie so many numbers apart. */
static void put_matrix(nn_buffer *out, const float *at, int rows, int columns, int row_stride, int column_stride)
{
    nn_buffer_putc(out, '[');
    for (int r = 0; r < rows; r++) {
        nn_buffer_puts(out, r ? ", [" : "[");
        for (int c = 0; c < columns; c++) {
            double value = (double)at[r * row_stride + c * column_stride];
            if (c) nn_buffer_puts(out, ", ");
            if (isfinite(value)) nn_buffer_printf(out, "%.9g", value);
            else nn_buffer_puts(out, "null");
        }
        nn_buffer_putc(out, ']');
    }
    nn_buffer_putc(out, ']');
}

static void put_words(nn_buffer *out, const explain_sentence *s)
{
    nn_buffer_putc(out, '[');
    for (int i = 0; i < s->count; i++) {
        if (i) nn_buffer_puts(out, ", ");
        put_text(out, s->word[i]);
    }
    nn_buffer_putc(out, ']');
}

static void put_head(nn_buffer *out, const explain_model *m, int h)
{
    const struct {
        const char *key;
        const float *at;
        int rows, columns, row_stride, column_stride;
    } arrays[] = {
        {"w_q", (const float *)m->weights_of.q_weight.data + h * m->D * m->M, m->M, m->D, 1, m->M},
        {"w_k", (const float *)m->weights_of.k_weight.data + h * m->D * m->M, m->M, m->D, 1, m->M},
        {"w_v", (const float *)m->weights_of.v_weight.data + h * m->D * m->M, m->M, m->D, 1, m->M},
        {"q", m->q + h * m->D, m->T, m->D, m->H * m->D, 1},
        {"k", m->k + h * m->D, m->K, m->D, m->H * m->D, 1},
        {"v", m->v + h * m->D, m->K, m->D, m->H * m->D, 1},
        {"scores", m->raw + explain_at(m, h, 0, 0), m->T, m->K, m->K, 1},
        {"scaled", m->scaled + explain_at(m, h, 0, 0), m->T, m->K, m->K, 1},
        {"masked", m->masked + explain_at(m, h, 0, 0), m->T, m->K, m->K, 1},
        {"weights", m->weights + explain_at(m, h, 0, 0), m->T, m->K, m->K, 1},
        {"out", m->concat + h * m->D, m->T, m->D, m->H * m->D, 1},
    };
    nn_buffer_printf(out, "    {\"number\": %d, \"name\": \"%s\", \"attends_to\": \"%s\", \"random\": %s", h + 1,
                     m->head[h].name, m->head[h].habit, h < m->patterns ? "false" : "true");
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        nn_buffer_printf(out, ",\n     \"%s\": ", arrays[i].key);
        put_matrix(out, arrays[i].at, arrays[i].rows, arrays[i].columns, arrays[i].row_stride, arrays[i].column_stride);
    }
    nn_buffer_puts(out, h + 1 < m->H ? "},\n" : "}\n");
}

static void put_inputs(nn_buffer *out, const explain_model *m)
{
    nn_buffer_puts(out, "{\n  \"words\": ");
    put_words(out, &m->query);
    nn_buffer_puts(out, ",\n  \"cross\": ");
    if (m->cross) put_words(out, &m->key);
    else nn_buffer_puts(out, "null");
    nn_buffer_printf(out, ",\n  \"causal\": %s,\n  \"width\": %d,\n  \"heads\": %d,\n  \"head_width\": %d,\n",
                     m->causal ? "true" : "false", m->M, m->H, m->D);
    nn_buffer_printf(out, "  \"scale\": %.9g,\n  \"written_for_text\": %s,\n  \"slots\": [", 1 / sqrt(m->D),
                     m->own ? "true" : "false");
    for (int n = 0; n < m->M; n++) nn_buffer_printf(out, "%s\"%s\"", n ? ", " : "", m->slot[n]);
    nn_buffer_puts(out, "],\n  \"x\": ");
    put_matrix(out, m->x, m->T, m->M, m->M, 1);
    nn_buffer_puts(out, ",\n  \"z\": ");
    if (m->cross) put_matrix(out, m->z, m->K, m->M, m->M, 1);
    else nn_buffer_puts(out, "null");
}

bool explain_print_json(const explain_model *m)
{
    nn_buffer out = {0};
    put_inputs(&out, m);
    nn_buffer_puts(&out, ",\n  \"per_head\": [\n");
    for (int h = 0; h < m->H; h++) put_head(&out, m, h);
    nn_buffer_puts(&out, "  ],\n  \"concat\": ");
    put_matrix(&out, m->concat, m->T, m->H * m->D, m->H * m->D, 1);
    nn_buffer_puts(&out, ",\n  \"w_o\": ");
    put_matrix(&out, m->weights_of.out_weight.data, m->H * m->D, m->M, 1, m->H * m->D);
    nn_buffer_puts(&out, ",\n  \"y\": ");
    put_matrix(&out, m->y, m->T, m->M, m->M, 1);
    nn_buffer_printf(&out, ",\n  \"layer_difference\": %.9g\n}\n", m->difference);
    bool whole = !out.failed;
    if (whole) fwrite(out.bytes, 1, out.size, stdout);
    nn_buffer_free(&out);
    return whole;
}
