/* The headers alone, and each defaults macro as an initialiser: compiled as C11 and as C++11 with every warning on. */
#include <mha_ops.h>
#include <mha_speech.h>
#include <mha_text.h>

int main(void)
{
    mha_context_options context = MHA_CONTEXT_DEFAULTS;
    mha_attention_options attention = MHA_ATTENTION_DEFAULTS;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
    mha_stats stats = MHA_NO_STATS;
    mha_stats_options statistics = MHA_STATS_DEFAULTS;
    mha_rotary_options rotary = MHA_ROTARY_DEFAULTS;
    mha_layer_options layer = MHA_LAYER_DEFAULTS;
    mha_weight weight = MHA_NO_WEIGHT;
    mha_layer_weights weights = MHA_LAYER_WEIGHTS_DEFAULTS;
    mha_model_options model = MHA_MODEL_DEFAULTS;
    mha_generation_options generation = MHA_GENERATION_DEFAULTS;
    mha_data_options data = MHA_DATA_DEFAULTS;
    mha_layer_file_options layer_file = MHA_LAYER_FILE_DEFAULTS;
    mha_survey_options survey = MHA_SURVEY_DEFAULTS;
    mha_ablate_options ablate = MHA_ABLATE_DEFAULTS;
    mha_program_options program = MHA_PROGRAM_DEFAULTS;
    mha_tokenizer_options tokenizer = MHA_TOKENIZER_DEFAULTS;
    mha_encode_options encode = MHA_ENCODE_DEFAULTS;
    mha_tokenizer_train_options tokenizer_train = MHA_TOKENIZER_TRAIN_DEFAULTS;
    mha_embedder_options embedder = MHA_EMBEDDER_DEFAULTS;
    mha_text_options text = MHA_TEXT_DEFAULTS;
    mha_speech_options speech = MHA_SPEECH_DEFAULTS;
    mha_roles_options roles = MHA_ROLES_DEFAULTS;
    mha_save_options save = MHA_SAVE_DEFAULTS;
    mha_fit_options fit = MHA_FIT_DEFAULTS;
    mha_prune_options prune = MHA_PRUNE_DEFAULTS;
    mha_matmul_options product = MHA_MATMUL_DEFAULTS;
    mha_tensor tensor = MHA_NO_TENSOR;
    mha_norm_options norm = MHA_NORM_DEFAULTS;
    mha_norm_gradients norm_gradients = MHA_NORM_NO_GRADIENTS;
    mha_embedding_options embedding = MHA_EMBEDDING_DEFAULTS;
    mha_loss_options loss = MHA_LOSS_DEFAULTS;
    mha_dropout_options dropout = MHA_DROPOUT_DEFAULTS;
    return context.threads + attention.causal + extras.lse.rank + gradients.q.rank + stats.mass.rank +
           statistics.sets.rank + rotary.interleaved + layer.causal + (int)weights.size + weight.values.rank +
           (int)model.heads + (int)generation.beams + data.test_only + (int)layer_file.heads + (int)survey.images +
           (int)ablate.images + (int)program.tokens + (int)roles.images + (int)save.note_count + (int)prune.keep +
           product.accumulate + tensor.rank + norm.gain.rank + norm_gradients.x.rank + embedding.accumulate +
           (int)loss.size + (int)dropout.size + (int)tokenizer.size + (int)encode.size + (int)tokenizer_train.size +
           (int)text.size + (int)speech.size + (int)fit.size + (int)embedder.size;
}
