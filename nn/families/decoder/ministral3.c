/* Ministral 3: Mistral with YaRN. Beyond the tokens of training it scales its queries by their position, which is not
 * supported: longer texts are refused. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"head_dim", NN_INT, NN_D(blocks.head_width), "128", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {"rope_scaling.original_max_position_embeddings|rope_parameters.original_max_position_embeddings", NN_INT,
     NN_D(input.positions), "16384", NULL},
    {0},
};

const nn_family nn_family_ministral3 = {
    .type = "ministral3",
    .keys = {nn_llama_keys, nn_mistral_keys, keys, nn_untied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 1000000,
               .unsaid =
                   "{\"rope_type\":\"yarn\",\"rope_theta\":1000000,\"factor\":16,\"beta_fast\":32,\"beta_slow\":1,"
                   "\"mscale\":1,\"mscale_all_dim\":1,\"original_max_position_embeddings\":16384}"},
    .window = {.layers = NN_SLIDES_ALWAYS, .key = "sliding_window", .absent = "null"},
    .heads = NN_DECODER_HEADS,
};
