/* All families, and the tables that several of them share. */
#ifndef NN_FAMILIES_LISTS_H
#define NN_FAMILIES_LISTS_H

#include "families/family.h"

/* Llama's blocks: RMS norms before attention and a gated MLP, without biases. */
extern const nn_key nn_llama_keys[];
extern const nn_name nn_llama_names[];

/* Gemma's: gains less one, embeddings times sqrt(M), and in the later ones norms before and behind. */
extern const nn_key nn_gemma_keys[];
extern const nn_name nn_gemma_names[];
extern const nn_name nn_gemma2_names[];

/* attention_bias: q, k, v and the output have biases together; mlp_bias likewise. */
extern const nn_key nn_attention_bias_keys[], nn_mlp_bias_keys[];

/* A head over the rows of the last block, tied or not: lm_head.weight. */
extern const nn_key nn_tied_keys[],
    nn_untied_keys[]; /* tie_word_embeddings is true, or false, where the file lacks it */
extern const nn_name nn_lm_names[];

/* Heads of decoders: of a language model; of texts, over the last token. Heads of encoders as well: of tokens, whose classes have
 * names, as those of pooled rows always do; of answers, whose tensors some families put elsewhere, and whose classes are two in
 * decoders. */
extern const nn_key nn_score_keys[], nn_each_token_keys[], nn_named_keys[], nn_answer_keys[];
extern const nn_name nn_score_names[], nn_each_token_names[], nn_answer_names[];
#define NN_DECODER_HEADS                                                                                           \
    {                                                                                                              \
        {"ForCausalLM", {NULL}, NULL, NULL}, {"ForSequenceClassification", {nn_score_keys}, nn_score_names, NULL}, \
            {"ForTokenClassification", {nn_each_token_keys, nn_named_keys}, nn_each_token_names, NULL},            \
            {"ForQuestionAnswering", {nn_each_token_keys, nn_answer_keys}, nn_answer_names, "transformer."},       \
    }

/* What other decoders share with later ones of their kind. */
extern const nn_key nn_gpt2_keys[], nn_gptj_keys[], nn_mistral_keys[], nn_gemma2_keys[], nn_olmo2_keys[];
extern const nn_key nn_cohere_keys[], nn_glm_keys[], nn_falcon_keys[], nn_biogpt_keys[];
extern const nn_name nn_gpt2_names[], nn_gptj_names[], nn_falcon_names[], nn_olmo2_names[], nn_gate_up_names[];
extern const char *const nn_gptj_unused[];

/* BERT's: post-norm, learned positions and token types. Names lack the family's prefix. */
extern const nn_key nn_bert_keys[], nn_is_decoder_keys[];
extern const nn_name nn_bert_names[];

/* Heads of encoders: of a masked language model, and of a classifier over the first token, each with a product before it. */
extern const nn_key nn_masked_keys[], nn_class_keys[];

/* The head of a classifier with its number of labels, without a product before it. */
extern const nn_key nn_label_keys[];

/* BART's: an encoder and a decoder that share their tokens. */
extern const nn_key nn_bart_keys[];
extern const nn_name nn_bart_names[];
extern const char *const nn_pair_unused[];

/* ViT's: patches. */
extern const nn_key nn_vit_keys[];
extern const nn_name nn_vit_names[];

#define NN_FAMILY(name) extern const nn_family nn_family_##name;
#include "families/families.def"
#undef NN_FAMILY

#endif
