/* Encoder-decoders of OpenNMT under the names of M2M-100: pre-norm, sinusoidal positions from 1 on, vocabularies of their
 * own for both sides, and a head with a bias. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"encoder.model_type", NN_ONLY, 0, "null", NULL}, /* of an EncoderDecoderModel, which has this model_type as well */
    {"model.encoder.embed_tokens.weight", NN_SIZE_OF, NN_E(input.vocabulary), NULL, NULL},
    {"d_model", NN_INT, NN_E(blocks.width), NULL, NULL},
    {"encoder_layers", NN_INT, NN_E(blocks.depth), NULL, NULL},
    {"attention_heads", NN_INT, NN_E(blocks.heads), NULL, NULL},
    {"ffn_dim", NN_INT, NN_E(blocks.mlp), NULL, NULL},
    {"activation_function", NN_ACTIVATION, NN_E(blocks.activation), NULL, NULL},
    {"layer_norm_eps", NN_FLOAT, NN_E(blocks.epsilon), NULL, NULL},
    {"scale_embedding", NN_ROOT, NN_E(input.scale), NULL, NULL},
    {NULL, NN_CHOICE, NN_E(input.position_kind), "2", NULL}, /* NN_POSITIONS_SINUSOIDAL */
    {NULL, NN_INT, NN_E(input.first_position), "1", NULL},
    {NULL, NN_INT, NN_E(input.positions), "4097", NULL},
    {"model.decoder.embed_tokens.weight", NN_SIZE_OF, NN_D(input.vocabulary), NULL, NULL},
    {"d_model", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"decoder_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {"ffn_dim", NN_INT, NN_D(blocks.mlp), NULL, NULL},
    {"activation_function", NN_ACTIVATION, NN_D(blocks.activation), NULL, NULL},
    {"layer_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), NULL, NULL},
    {"scale_embedding", NN_ROOT, NN_D(input.scale), NULL, NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "2", NULL}, /* NN_POSITIONS_SINUSOIDAL */
    {NULL, NN_INT, NN_D(input.first_position), "1", NULL},
    {NULL, NN_INT, NN_D(input.positions), "4097", NULL},
    {"pre_norm", NN_ONLY, 0, "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"lm_head.weight", NN_SIZE_OF, NN_O(classes), NULL, NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {0},
};

const nn_family nn_family_encoder_decoder = {
    .type = "encoder-decoder",
    .keys = {keys},
    .names = {nn_bart_names},
};
