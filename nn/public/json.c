/* A description as JSON: one table per struct says which field has which name. */
#include "io/buffer.h"
#include "public/model.h"
#include <inttypes.h>

const char *const nn_public_activations[] = {[MHA_LINEAR] = "linear",
                                             [MHA_RELU] = "relu",
                                             [MHA_GELU] = "gelu",
                                             [MHA_GELU_TANH] = "gelu_tanh",
                                             [MHA_SILU] = "silu",
                                             [MHA_TANH] = "tanh",
                                             [MHA_QUICK_GELU] = "quick_gelu",
                                             [MHA_RELU_SQUARED] = "relu_squared"};
const char *const nn_public_places[] = {
    [NN_NORM_BEFORE] = "before", [NN_NORM_BEHIND] = "behind", [NN_NORM_BOTH] = "both", [NN_NORM_AFTER] = "after"};
static const char *const positions[] = {[NN_POSITIONS_NONE] = "none",
                                        [NN_POSITIONS_LEARNED] = "learned",
                                        [NN_POSITIONS_SINUSOIDAL] = "sinusoidal",
                                        [NN_POSITIONS_WAVES] = "sinusoidal"};
static const char *const scalings[] = {
    [NN_ROTARY_AS_IS] = "default", [NN_ROTARY_LINEAR] = "linear", [NN_ROTARY_DYNAMIC] = "dynamic",
    [NN_ROTARY_YARN] = "yarn",     [NN_ROTARY_LLAMA3] = "llama3", [NN_ROTARY_LONG] = "longrope"};
static const char *const pools[] = {[NN_POOL_NONE] = "none",
                                    [NN_POOL_FIRST] = "first",
                                    [NN_POOL_MEAN] = "mean",
                                    [NN_POOL_LAST] = "last",
                                    [NN_POOL_BOTH] = "first and mean",
                                    [NN_POOL_TWO] = "first and second",
                                    [NN_POOL_REST] = "mean but the first",
                                    [NN_POOL_PICKED] = "end token"};

static void put_whole(nn_buffer *out, const char *key, int64_t value)
{
    nn_buffer_printf(out, "\"%s\":%" PRId64 ",", key, value);
}

static void put_truth(nn_buffer *out, const char *key, bool value)
{
    nn_buffer_printf(out, "\"%s\":%s,", key, value ? "true" : "false");
}

/* NAN, which stands for the usual value, is null. */
static void put_real(nn_buffer *out, const char *key, double value)
{
    if (isnan(value)) nn_buffer_printf(out, "\"%s\":null,", key);
    else nn_buffer_printf(out, "\"%s\":%.9g,", key, value);
}

static void put_word(nn_buffer *out, const char *key, const char *value)
{
    nn_buffer_printf(out, "\"%s\":\"%s\",", key, value);
}

/* Ends an object: a comma becomes its brace. */
static void close_object(nn_buffer *out, const char *then)
{
    if (!out->failed && out->size && out->bytes[out->size - 1] == ',') out->size--;
    nn_buffer_puts(out, then);
}

static void put_input(nn_buffer *out, const nn_input_config *in)
{
    bool patches = in->kind == NN_INPUT_PATCHES;
    nn_buffer_puts(out, "\"input\":{");
    put_word(out, "kind", patches ? "patches" : in->kind == NN_INPUT_FRAMES ? "frames" : "tokens");
    if (in->kind == NN_INPUT_FRAMES) put_whole(out, "bins", in->bins);
    else if (patches) {
        put_whole(out, "channels", in->channels);
        put_whole(out, "rows", in->rows);
        put_whole(out, "columns", in->columns);
        put_whole(out, "patch", in->patch);
        put_real(out, "mean", (double)in->mean);
        put_real(out, "deviation", (double)in->deviation);
        put_truth(out, "class_token", in->class_token);
    } else {
        put_whole(out, "vocabulary", in->vocabulary);
        put_whole(out, "token_types", in->token_types);
        put_whole(out, "width", in->width);
        put_whole(out, "first_position", in->first_position);
        put_real(out, "scale", (double)in->scale);
        put_truth(out, "norm", in->norm);
    }
    put_word(out, "positions", positions[in->position_kind]);
    close_object(out, "},");
}

static void put_attention(nn_buffer *out, const nn_blocks_config *b, int64_t l)
{
    const nn_attention_config *a = nn_blocks_attention(b, l);
    nn_buffer_puts(out, "{");
    put_whole(out, "heads", nn_blocks_heads(b, l));
    put_whole(out, "kv_heads", nn_blocks_kv_heads(b, l));
    put_whole(out, "head_width", nn_blocks_head_width(b));
    put_real(out, "scale", (double)a->scale);
    put_real(out, "softcap", (double)a->softcap);
    put_whole(out, "window_left", a->window_left);
    put_whole(out, "window_right", a->window_right);
    put_real(out, "rotary_base", a->rotary_base);
    put_whole(out, "rotary_width", a->rotary_width);
    put_truth(out, "rotary_interleaved", a->rotary_interleaved);
    if (a->rotary_base > 0 && a->rotary.scaling) put_word(out, "rotary_scaling", scalings[a->rotary.scaling]);
    if (a->relative_buckets) put_whole(out, "relative_buckets", a->relative_buckets);
    put_real(out, "qk_norm", (double)a->qk_norm);
    put_truth(out, "in_bias", a->in_bias);
    put_truth(out, "out_bias", a->out_bias);
    put_truth(out, "alibi", a->alibi);
    put_truth(out, "sinks", a->sinks);
    close_object(out, "},");
}

static void put_stack(nn_buffer *out, const char *key, const nn_stack_config *s)
{
    const nn_blocks_config *b = &s->blocks;
    if (!b->depth) {
        nn_buffer_printf(out, "\"%s\":null,", key);
        return;
    }
    nn_buffer_printf(out, "\"%s\":{", key);
    put_input(out, &s->input);
    put_whole(out, "width", b->width);
    put_whole(out, "blocks", b->depth);
    put_whole(out, "mlp", b->mlp);
    if (b->experts) put_whole(out, "experts", b->experts), put_whole(out, "experts_used", b->experts_used);
    put_truth(out, "mlp_gated", b->gated);
    put_truth(out, "mlp_bias", b->mlp_bias);
    put_word(out, "activation", nn_public_activations[b->activation]);
    put_word(out, "norm", b->norm == NN_RMS_NORM ? "rms" : "layer");
    put_truth(out, "norm_bias", b->norm == NN_LAYER_NORM && b->norm_bias);
    put_real(out, "epsilon", (double)b->epsilon);
    put_word(out, "norm_place", nn_public_places[b->place]);
    put_truth(out, "parallel", b->parallel);
    put_truth(out, "one_norm", b->one_norm);
    put_truth(out, "final_norm", b->final_norm);
    put_truth(out, "causal", b->causal);
    put_real(out, "residual", (double)b->residual);
    nn_buffer_puts(out, "\"attention\":[");
    for (int64_t l = 0; l < b->depth; l++) put_attention(out, b, l);
    close_object(out, "]},");
}

char *nn_public_json(const nn_description *d)
{
    nn_buffer out = {0};
    const nn_output_config *o = &d->output;
    nn_buffer_puts(&out, "{");
    put_stack(&out, "encoder", &d->encoder);
    put_stack(&out, "decoder", &d->decoder);
    nn_buffer_puts(&out, "\"output\":{");
    put_whole(&out, "classes", o->classes);
    put_word(&out, "pool", pools[o->pool]);
    put_truth(&out, "tied", o->tied);
    put_truth(&out, "bias", o->bias);
    put_real(&out, "scale", (double)o->scale);
    put_real(&out, "softcap", (double)o->softcap);
    close_object(&out, "}}");
    nn_buffer_putc(&out, 0);
    if (!out.failed) return out.bytes;
    nn_buffer_free(&out);
    return NULL;
}
