/* How a folder of sentence-transformers computes embeddings: modules.json and the files that it names.
 *
 *     modules.json                        Transformer, Pooling, then any of Dense and Normalize
 *     sentence_bert_config.json           max_seq_length, do_lower_case
 *     tokenizer_config.json               model_max_length, truncation_side, where the file above does not say
 *     config_sentence_transformers.json   prompts, default_prompt_name, truncate_dim
 *     1_Pooling/config.json               pooling_mode, or pooling_mode_mean_tokens and so on; include_prompt
 *     2_Dense/config.json                 and its model.safetensors: linear.weight, linear.bias, residual.weight
 *
 * What is there and cannot be followed is an error. */
#ifndef NN_PUBLIC_TEXT_SENTENCE_H
#define NN_PUBLIC_TEXT_SENTENCE_H

#include <mha.h>

typedef enum nn_sentence_pool {
    NN_SENTENCE_FIRST,
    NN_SENTENCE_MAX,
    NN_SENTENCE_MEAN,
    NN_SENTENCE_ROOT,     /* the sum over the square root of the number of tokens */
    NN_SENTENCE_WEIGHTED, /* the mean with weights 1, 2, 3, ... */
    NN_SENTENCE_LAST,
    NN_SENTENCE_POOLS
} nn_sentence_pool;

/* The word for a pool, and the pool of a word; false if it is none. */
extern const char *const nn_sentence_words[NN_SENTENCE_POOLS];
bool nn_sentence_pool_of(const char *word, nn_sentence_pool *pool);

typedef enum nn_sentence_activation {
    NN_SENTENCE_IDENTITY,
    NN_SENTENCE_TANH,
    NN_SENTENCE_RELU,
    NN_SENTENCE_GELU,
    NN_SENTENCE_SILU,
    NN_SENTENCE_SIGMOID
} nn_sentence_activation;

/* A step behind pooling: y = a(x W^T + b), plus x or x R^T with a residual; or, without `weight`, y = x / |x|. */
typedef struct nn_sentence_step {
    int64_t in, out;
    float *weight, *bias, *residual; /* (out,in), (out), (out,in); or NULL */
    bool adds;                       /* with a residual */
    nn_sentence_activation activation;
} nn_sentence_step;

enum { NN_SENTENCE_STEPS = 8 };

typedef struct nn_sentence {
    bool there; /* the folder has a modules.json; else the defaults: the mean, normalised */
    nn_sentence_pool pools[NN_SENTENCE_POOLS];
    int pool_count;
    bool skip_prompt;          /* the tokens of the prompt are not pooled */
    bool lower;                /* texts are changed to lower case */
    bool from_left;            /* long texts lose their first tokens */
    int64_t longest;           /* tokens of a text, beyond which it is cut; 0: not said; */
    int64_t tokenizer_longest; /* then the tokenizer may say so, and the model's positions are a limit as well */
    int64_t dimensions;        /* only so many first numbers are the result; 0: all */
    char **names, **texts;     /* (prompt_count) of prompts */
    int64_t prompt_count;
    char *prompt_name; /* of the default prompt; or NULL */
    nn_sentence_step steps[NN_SENTENCE_STEPS];
    int step_count;
} nn_sentence;

/* Reads a folder, which may also be a file: then, and without modules.json, these are the defaults. Returns false with one line
 * in `error`. To be freed in either case. */
bool nn_sentence_open(nn_sentence *s, mha_context *ctx, const char *folder, char *error, size_t error_size);
void nn_sentence_free(nn_sentence *s);

/* The text of a prompt; NULL: there is none of that name. */
const char *nn_sentence_prompt(const nn_sentence *s, const char *name);

/* The steps behind pooling, over `vector` of `width` numbers, in which each leaves its result; *width gets its width. False
 * without memory. `vector` has room for the widest one. Without `normalize`, vectors keep their length. */
int64_t nn_sentence_widest(const nn_sentence *s, int64_t width); /* after pooling to `width` numbers */
bool nn_sentence_finish(const nn_sentence *s, double *vector, int64_t *width, bool normalize);

#endif
