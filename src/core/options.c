#include "core/options.h"
#include "mha_ops.h"
#include <stdio.h>
#include <string.h>

mha_status mha_options_read(void *own, size_t own_size, const void *given, const char *macro, char *why,
                            size_t why_size)
{
    size_t size;
    if (!given) return MHA_OK;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size) {
        snprintf(why, why_size, "options: their size is %zu; start from %s", size, macro);
        return MHA_BAD_ARGUMENT;
    }
    if (size > own_size) {
        snprintf(why, why_size, "options: have %zu bytes, this library knows %zu; it is older than the program", size,
                 own_size);
        return MHA_BAD_ARGUMENT;
    }
    memcpy(own, given, size);
    memcpy(own, &own_size, sizeof own_size);
    return MHA_OK;
}

mha_status mha_options_take(mha_context *ctx, void *own, size_t own_size, const void *given, const char *macro)
{
    return mha_options_read(own, own_size, given, macro, ctx->error, sizeof ctx->error);
}

/* The first bytes of the defaults, with their number in place of the whole size. */
static void copy_defaults(void *options, size_t size, const void *defaults, size_t all)
{
    if (!options || size < sizeof size) return;
    if (size > all) size = all;
    memcpy(options, defaults, size);
    memcpy(options, &size, sizeof size);
}

void mha_context_defaults(mha_context_options *options, size_t size)
{
    static const mha_context_options defaults = MHA_CONTEXT_DEFAULTS;
    copy_defaults(options, size, &defaults, sizeof defaults);
}

void mha_attention_defaults(mha_attention_options *options, size_t size)
{
    static const mha_attention_options defaults = MHA_ATTENTION_DEFAULTS;
    copy_defaults(options, size, &defaults, sizeof defaults);
}

void mha_stats_defaults(mha_stats_options *options, size_t size)
{
    static const mha_stats_options defaults = MHA_STATS_DEFAULTS;
    copy_defaults(options, size, &defaults, sizeof defaults);
}

void mha_rotary_defaults(mha_rotary_options *options, size_t size)
{
    static const mha_rotary_options defaults = MHA_ROTARY_DEFAULTS;
    copy_defaults(options, size, &defaults, sizeof defaults);
}

void mha_layer_defaults(mha_layer_options *options, size_t size)
{
    static const mha_layer_options defaults = MHA_LAYER_DEFAULTS;
    copy_defaults(options, size, &defaults, sizeof defaults);
}

void mha_layer_weights_defaults(mha_layer_weights *weights, size_t size)
{
    static const mha_layer_weights defaults = MHA_LAYER_WEIGHTS_DEFAULTS;
    copy_defaults(weights, size, &defaults, sizeof defaults);
}

void mha_matmul_defaults(mha_matmul_options *options, size_t size)
{
    static const mha_matmul_options defaults = MHA_MATMUL_DEFAULTS;
    copy_defaults(options, size, &defaults, sizeof defaults);
}

void mha_norm_defaults(mha_norm_options *options, size_t size)
{
    static const mha_norm_options defaults = MHA_NORM_DEFAULTS;
    copy_defaults(options, size, &defaults, sizeof defaults);
}

void mha_embedding_defaults(mha_embedding_options *options, size_t size)
{
    static const mha_embedding_options defaults = MHA_EMBEDDING_DEFAULTS;
    copy_defaults(options, size, &defaults, sizeof defaults);
}

void mha_loss_defaults(mha_loss_options *options, size_t size)
{
    static const mha_loss_options defaults = MHA_LOSS_DEFAULTS;
    copy_defaults(options, size, &defaults, sizeof defaults);
}

void mha_dropout_defaults(mha_dropout_options *options, size_t size)
{
    static const mha_dropout_options defaults = MHA_DROPOUT_DEFAULTS;
    copy_defaults(options, size, &defaults, sizeof defaults);
}
