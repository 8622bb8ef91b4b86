#include "inspect/text/pass.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t nn_text_positions(const nn_input_config *in)
{
    if (in->position_kind) return in->positions - in->first_position;
    return in->positions > 0 ? in->positions : INT64_C(1) << 40;
}

static bool hears(const nn_description *d)
{
    return d->encoder.blocks.depth && d->encoder.input.kind == NN_INPUT_FRAMES;
}

bool nn_text_has_maps(const nn_description *d, const nn_attention_place *a) { return a->decoder || !hears(d); }

int64_t nn_text_maps_lay(mha_tensor *maps, float *numbers, const nn_description *d, int64_t B, const int64_t T[2])
{
    int64_t at = 0;
    for (int64_t n = 0; n < nn_description_attentions(d); n++) {
        nn_attention_place a = nn_description_attention(d, n);
        int64_t Tq = T[a.decoder], Tk = a.cross ? T[0] : Tq;
        bool has = nn_text_has_maps(d, &a);
        if (maps && !has) maps[n] = (mha_tensor)MHA_NO_TENSOR;
        else if (maps) maps[n] = mha_tensor_4d(numbers + at, MHA_FLOAT32, B, a.heads, Tq, Tk);
        at += has ? B * a.heads * Tq * Tk : 0;
    }
    return at;
}

int64_t nn_text_pass_batch(const nn_description *d, const int64_t T[2])
{
    int64_t one = nn_text_maps_lay(NULL, NULL, d, 1, T) * (int64_t)sizeof(float);
    int64_t batch = one ? NN_TEXT_MAPS / one : NN_TEXT_BATCH;
    return batch < 1 ? 1 : batch > NN_TEXT_BATCH ? NN_TEXT_BATCH : batch;
}

bool nn_text_pass_open(nn_text_pass *p, mha_context *ctx, nn_model *net, const int64_t longest[2], char *error,
                       size_t error_size)
{
    const nn_description *d = nn_model_description(net);
    size_t attentions = (size_t)nn_description_attentions(d);
    *p = (nn_text_pass){.ctx = ctx, .net = net, .batch = nn_text_pass_batch(d, longest)};
    int64_t numbers = nn_text_maps_lay(NULL, NULL, d, p->batch, longest);
    for (int s = 0; s < 2; s++) p->tokens[s] = malloc((size_t)(p->batch * longest[s] + 1) * sizeof *p->tokens[s]);
    int64_t heard = hears(d) ? p->batch * d->encoder.input.bins * 2 * longest[0] : 0;
    p->features = malloc((size_t)(heard + 1) * sizeof *p->features);
    p->numbers = malloc((size_t)(numbers + 1) * sizeof *p->numbers);
    p->maps = calloc(attentions, sizeof *p->maps);
    p->each = calloc(attentions, sizeof *p->each);
    if (p->tokens[0] && p->tokens[1] && p->features && p->numbers && p->maps && p->each) return true;
    snprintf(error, error_size, "not enough memory for the attention weights of %lld heads",
             (long long)nn_description_all_heads(d));
    return false;
}

void nn_text_pass_close(nn_text_pass *p)
{
    free(p->tokens[0]);
    free(p->tokens[1]);
    free(p->features);
    free(p->numbers);
    free(p->maps);
    free(p->each);
    *p = (nn_text_pass){0};
}

static bool same_lengths(const nn_text_sequence *a, const nn_text_sequence *b)
{
    return a->T[0] == b->T[0] && a->T[1] == b->T[1];
}

/* Runs B sequences of the same lengths. Logits, which nobody reads, are computed for one row of each. */
static bool run(nn_text_pass *p, const nn_text_sequence *sequences, int64_t B)
{
    const nn_description *d = nn_model_description(p->net);
    const int64_t *T = sequences->T, last = d->decoder.blocks.depth ? T[1] : T[0];
    int64_t rows[NN_TEXT_BATCH];
    nn_batch batch = {.B = B};
    nn_sequences *to[2] = {&batch.encoder, &batch.decoder};
    nn_call call = {.maps = p->maps, .rows = d->output.pool ? NULL : rows, .row_count = B};
    for (int s = 0; s < 2; s++) {
        bool frames = !s && hears(d);
        int64_t numbers = frames ? d->encoder.input.bins * 2 * T[0] : 0;
        for (int64_t b = 0; b < B && T[s]; b++)
            if (frames) memcpy(p->features + b * numbers, sequences[b].features, (size_t)numbers * sizeof(float));
            else memcpy(p->tokens[s] + b * T[s], sequences[b].tokens[s], (size_t)T[s] * sizeof(int32_t));
        to[s]->T = T[s];
        if (frames) to[s]->features = p->features;
        else to[s]->tokens = T[s] ? p->tokens[s] : NULL;
    }
    for (int64_t b = 0; b < B; b++) rows[b] = b * last;
    nn_text_maps_lay(p->maps, p->numbers, d, B, T);
    return nn_model_forward(p->net, p->ctx, &batch, &call);
}

static bool finite(const float *x, int64_t count)
{
    bool good = true;
    for (int64_t i = 0; i < count; i++) good &= isfinite(x[i]) != 0;
    return good;
}

bool nn_text_pass_run(nn_text_pass *p, const nn_text_sequence *sequences, int64_t count, nn_text_visit *visit,
                      void *arg, char *error, size_t error_size)
{
    const nn_description *d = nn_model_description(p->net);
    for (int64_t first = 0, B; first < count; first += B) {
        for (B = 1; B < p->batch && first + B < count && same_lengths(&sequences[first], &sequences[first + B]);) B++;
        const int64_t *T = sequences[first].T;
        if (!run(p, sequences + first, B)) {
            snprintf(error, error_size, "%s", mha_context_error(p->ctx));
            return false;
        }
        if (!finite(p->numbers, nn_text_maps_lay(NULL, NULL, d, B, T))) {
            snprintf(error, error_size, "the attention weights of a head are not finite");
            return false;
        }
        for (int64_t b = 0; b < B; b++) {
            for (int64_t n = 0; n < nn_description_attentions(d); n++)
                p->each[n] = p->maps[n].data ? (const float *)p->maps[n].data + b * p->maps[n].stride[0] : NULL;
            visit(arg, first + b, p->each);
        }
    }
    return true;
}
