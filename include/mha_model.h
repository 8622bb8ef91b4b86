/* mha_model: transformers over mha.h.
 *
 * A complete program: which digit is it, and what did the first head look at? Build it with
 * cc digit.c $(pkg-config --cflags --libs mha-model)
 *
 *     #include <mha_model.h>
 *     #include <stdio.h>
 *
 *     int main(int argc, char **argv)
 *     {
 *         static float pixels[28 * 28], logits[10], map[4 * 50 * 50];
 *         mha_context *ctx;
 *         mha_model *model;
 *         if (argc < 2 || mha_context_create(&ctx, NULL)) return 1;
 *         if (mha_model_open(ctx, &model, argv[1], NULL)) return puts(mha_context_error(ctx)), 1;
 *
 *         mha_tensor maps[6] = {mha_tensor_4d(map, MHA_FLOAT32, 1, 4, 50, 50)};
 *         mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, 28, 28)};
 *         mha_model_outputs out = {.logits = mha_tensor_2d(logits, MHA_FLOAT32, 1, 10), .maps = maps};
 *         if (mha_model_run(ctx, model, &out, &in)) puts(mha_context_error(ctx));
 *         for (int c = 0; c < 10; c++) printf("%d: %g\n", c, (double)logits[c]);
 *         mha_model_free(model);
 *         mha_context_free(ctx);
 *     }
 *
 * What is here:
 *
 *     1  Models        open a checkpoint, say what it is
 *     2  Running       logits, hidden states, attention maps, statistics of heads
 *     3  Parameters    read them, change them, save them
 *     4  Heads         where they are, models without some of them
 *     5  Data          labelled examples, accuracy and loss
 *     6  Surveys       what every head attends to, over many examples
 *     7  Layer files   one multi-head layer of mha.h, opened from a file and saved
 *
 * Files that can be opened: Vision Transformers for grey images as `mha train vit` saves them, and safetensors files with
 * timm's tensor names. A file that is something else is refused with one line that says why.
 *
 * The rules of mha.h hold: calls return a status and leave one line in the context; nothing is written on error; zeroed
 * options are refused; results are the same bits for any number of threads, and those of a sequence depend on that
 * sequence alone. A model is used by one call at a time; it may be used with any context of the device that it was made
 * for. Letters as in mha.h; T is the tokens of a sequence, and L the blocks of a model. */
#ifndef MHA_MODEL_H
#define MHA_MODEL_H

#include <mha.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1 · Models ------------------------------------------------------------------------------------------------- */

typedef struct mha_model mha_model;

typedef struct mha_model_options {
    size_t size;      /* of this struct */
    int64_t heads;    /* heads per block, for files that do not say; 0: as the file says, and they must not differ */
    mha_type compute; /* MHA_FLOAT32, or MHA_BFLOAT16: factors of products are rounded to bfloat16 */
} mha_model_options;

/* clang-format off */
#define MHA_MODEL_DEFAULTS {sizeof(mha_model_options), 0, MHA_FLOAT32}
/* clang-format on */

MHA_API void mha_model_defaults(mha_model_options *options, size_t size);

/* Opens a checkpoint. `options` NULL means MHA_MODEL_DEFAULTS. On error *model is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (it cannot be read, is damaged or is no model that this library knows)
 * or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_open(mha_context *ctx, mha_model **model, const char *path,
                                  const mha_model_options *options);
MHA_API void mha_model_free(mha_model *model); /* NULL is legal */

/* What a model is. A number that does not apply is 0. */
typedef struct mha_model_info {
    size_t size;           /* of this struct, set by the caller; the rest is filled in */
    const char *family;    /* "vit" */
    int64_t parameters;    /* how many numbers */
    int64_t blocks;        /* L */
    int64_t width;         /* M */
    int64_t mlp;           /* width of the hidden layer */
    int64_t heads;         /* H of all blocks together */
    int64_t classes;       /* logits of a result */
    int64_t tokens;        /* T, where it is fixed: patches and the class token */
    int64_t channels;      /* of images, */
    int64_t rows, columns; /* their size, */
    int64_t patch;         /* and that of a patch */
    bool class_token;      /* the first token belongs to no patch, and the result is read from it */
    bool causal;
    float mean, deviation;  /* a pixel x from 0 to 1 goes in as (x - mean) / deviation */
    const char *assumed;    /* what the file does not say and was taken as usual, for people; "" for nothing */
    int64_t block_heads;    /* heads of a block, without regard to heads that were removed */
    const char *norm;       /* "layer" or "rms", */
    float epsilon;          /* with this epsilon, */
    const char *norm_place; /* "before": x + f(norm(x)), or "behind": norm(x + f(x)) */
    bool final_norm;        /* a norm follows the last block */
    const char *activation; /* of the hidden layer: "gelu", "gelu_tanh", "relu", "silu" or "linear" */
} mha_model_info;
MHA_API mha_status mha_model_about(mha_context *ctx, const mha_model *model, mha_model_info *info);

/* All of the description as one JSON object, for programs: what goes in, the blocks, what comes out. Valid as long as
 * the model. NULL if there was no memory for it when the model was made. */
MHA_API const char *mha_model_describe(const mha_model *model);

/* ---- 2 · Running ------------------------------------------------------------------------------------------------ */

/* What goes in. */
typedef struct mha_model_inputs {
    mha_tensor images; /* (B,channels,rows,columns), any float type: pixels from 0 to 1; the model applies its mean and
                          deviation. Bytes divided by 255.0f give the bits of mha_model_evaluate. */
} mha_model_inputs;

/* What comes out, on request: leave it all zero and it costs nothing. Attentions are counted from 0 as in section 4. */
typedef struct mha_model_outputs {
    mha_tensor logits; /* any float type (B,classes) */
    mha_tensor hidden; /* any float type (L+1,B,T,M): the rows before each block and, after the final norm, the last */
    const mha_tensor *maps;                 /* NULL, or one for each attention: any float type (B,H,T,T), the weights */
    const mha_stats *stats;                 /* NULL, or one for each attention: statistics of its heads, as in mha.h */
    const mha_stats_options *stats_options; /* of all of these; NULL: MHA_STATS_DEFAULTS */
} mha_model_outputs;

/* Runs the model over B sequences. No output may overlap anything else. Logits that are not finite are an error: sums of the model's
 * numbers have overflowed.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE, MHA_NO_MEMORY or
 * MHA_NO_DEVICE. */
MHA_API mha_status mha_model_run(mha_context *ctx, mha_model *model, const mha_model_outputs *outputs,
                                 const mha_model_inputs *inputs);

/* ---- 3 · Parameters --------------------------------------------------------------------------------------------- */

/* A parameter under the name that its family gives it, such as "blocks.0.attn.qkv.weight". */
typedef struct mha_model_part {
    const char *name;  /* valid as long as the model */
    mha_tensor tensor; /* float32, dense, where it lies: it may be written */
} mha_model_part;

/* How many there are, and number n: all zero if there is none. In the order in which they are saved. */
MHA_API int64_t mha_model_part_count(const mha_model *model);
MHA_API mha_model_part mha_model_part_get(const mha_model *model, int64_t n);

/* The one with that name; all zero if there is none. */
MHA_API mha_model_part mha_model_part_find(const mha_model *model, const char *name);

/* Parameters are read in every call, as changed. Saves them with all that is needed to open them again; a file at
 * `path` is replaced atomically. What is opened again has the same bits.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_save(mha_context *ctx, const mha_model *model, const char *path);

/* ---- 4 · Heads -------------------------------------------------------------------------------------------------- */

/* An attention of the model. A Vision Transformer has one in each block. */
typedef struct mha_model_attention {
    int64_t block;
    int64_t heads;    /* H */
    int64_t kv_heads; /* G */
    int64_t width;    /* D */
} mha_model_attention;

/* How many attentions there are, and number n: all zero if there is none. */
MHA_API int64_t mha_model_attention_count(const mha_model *model);
MHA_API mha_model_attention mha_model_attention_get(const mha_model *model, int64_t n);

/* Makes a smaller model of its own, with the heads for which keep[n] is true, counted through all attentions: at least
 * one of each. The rows and columns of the others are removed, as mha_layer_prune does. Returns as mha_model_open. */
MHA_API mha_status mha_model_prune(mha_context *ctx, mha_model **smaller, const mha_model *model, const bool *keep);

/* ---- 5 · Data --------------------------------------------------------------------------------------------------- */

/* Labelled examples: a part to train with and a part to test with. */
typedef struct mha_data mha_data;
typedef enum mha_data_part { MHA_DATA_TRAIN, MHA_DATA_TEST } mha_data_part;

typedef struct mha_data_options {
    size_t size;    /* of this struct */
    bool test_only; /* synthetic data have a training part of one image, which saves drawing the others */
} mha_data_options;

/* clang-format off */
#define MHA_DATA_DEFAULTS {sizeof(mha_data_options), false}
/* clang-format on */

MHA_API void mha_data_defaults(mha_data_options *options, size_t size);

/* Opens a folder with the four files of MNIST or of a set in the same format (plain or gzipped), or draws digits:
 * "synthetic" is 6000 for training and 1000 for testing, "synthetic:N" is N and N/6. Synthetic digits are the same on
 * every machine and much easier than MNIST; an accuracy on them should always be reported as such.
 * `options` NULL means MHA_DATA_DEFAULTS. On error *data is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE or MHA_NO_MEMORY. */
MHA_API mha_status mha_data_open(mha_context *ctx, mha_data **data, const char *place, const mha_data_options *options);
MHA_API void mha_data_free(mha_data *data); /* NULL is legal */

typedef struct mha_data_info {
    size_t size;           /* of this struct, set by the caller; the rest is filled in */
    const char *name;      /* for people: the folder, or the generator */
    const char *about;     /* for people: "60000 + 10000 images of 28 x 28 from FOLDER" */
    bool synthetic;        /* drawn by a program */
    int64_t train, test;   /* examples of each part, at least 1 */
    int64_t rows, columns; /* of an image */
    int64_t classes;
} mha_data_info;
MHA_API mha_status mha_data_about(mha_context *ctx, const mha_data *data, mha_data_info *info);

/* Image n of a part, (rows,columns) bytes, 0 for paper and 255 for ink, valid as long as the data; and its label, from 0
 * to below the number of classes. NULL and -1 if there is none. */
MHA_API const unsigned char *mha_data_image(const mha_data *data, mha_data_part part, int64_t n);
MHA_API int64_t mha_data_label(const mha_data *data, mha_data_part part, int64_t n);

/* Returns MHA_OK if the model reads such examples and has their classes, else MHA_BAD_SHAPE and a line that says what
 * differs. */
MHA_API mha_status mha_data_check(mha_context *ctx, const mha_data *data, const mha_model *model);

/* How good the predictions for some examples are. */
typedef struct mha_score {
    int64_t count, correct; /* labels, and those that had the largest logit */
    double loss;            /* mean cross-entropy */
} mha_score;

/* Predictions for `count` examples of a part, from example `first` on, on all threads of the context.
 *
 *   logits (count,classes), any float type; MHA_NO_TENSOR: not wanted        score: NULL: not wanted
 *
 * Of equal logits the first is the prediction. Logits that are not finite are an error, as in mha_model_run.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for examples that do not exist), MHA_BAD_SHAPE (also as mha_data_check),
 * MHA_BAD_TYPE, MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_model_evaluate(mha_context *ctx, mha_model *model, mha_tensor logits, mha_score *score,
                                      const mha_data *data, mha_data_part part, int64_t first, int64_t count);

/* ---- 6 · Surveys ------------------------------------------------------------------------------------------------ */

/* What every head of a model attends to, over many images. */
typedef struct mha_survey mha_survey;

/* Numbers of images, evenly spaced over the part; 0, or more than there are, is all of them. */
typedef struct mha_survey_options {
    size_t size;               /* of this struct */
    int64_t images;            /* for entropy, effective and largest */
    int64_t close_images;      /* of these, for all that needs maps; rounded to groups of a few images */
    int64_t importance_images; /* for the importance, which takes a backward pass; at most `images` */
} mha_survey_options;

/* clang-format off */
#define MHA_SURVEY_DEFAULTS {sizeof(mha_survey_options), 0, 400, 400}
/* clang-format on */

MHA_API void mha_survey_defaults(mha_survey_options *options, size_t size);

/* Surveys the heads of a model over a part of the data. The model may be changed or freed afterwards. `options` NULL means
 * MHA_SURVEY_DEFAULTS. On error *survey is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also if weights or logits are not finite, or if the model has no gradient: its
 * activation is "linear"), MHA_BAD_SHAPE as mha_data_check, MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_survey_make(mha_context *ctx, mha_survey **survey, mha_model *model, const mha_data *data,
                                   mha_data_part part, const mha_survey_options *options);
MHA_API void mha_survey_free(mha_survey *survey); /* NULL is legal */

typedef struct mha_survey_info {
    size_t size;                                     /* of this struct, set by the caller; the rest is filled in */
    int64_t images, close_images, importance_images; /* as they were chosen */
    int64_t blocks, heads;                           /* heads of all blocks together */
    int64_t tokens;                                  /* T */
    int64_t rows, columns;                           /* of the grid of patches */
    bool class_token;                                /* comes first */
} mha_survey_info;
MHA_API mha_status mha_survey_about(mha_context *ctx, const mha_survey *survey, mha_survey_info *info);

/* A head. Numbers are means over images and rows; a row holds the weights of one query token.
 *
 * A row of equal weights has an entropy of log T. What the entropy of a head lacks of that is the sum of three parts,
 * none of them negative. With the mean map, the mean of the weights (T,T) over images,
 *
 *     place      log T - the entropy of the mean row of the mean map: keys that all queries attend to in all images
 *     position   the entropy of the mean row - that of the rows of the mean map: what depends on the query's position
 *     content    the entropy of the rows of the mean map - that of single rows: what depends on the image
 *
 * `words` describe the head by the first rule that applies:
 *
 *     itself                      a token's own weight is at least 1/2
 *     the class token             its weight is at least 1/2
 *     one patch to the left       the patch at a fixed offset has at least 1/2, as a mean over patches that have such a
 *     2 up, 1 left                neighbour, if at least a quarter of all have one; on a grid of one row or column,
 *     the previous token          the previous or next token
 *     one place: row 3, column 5  one patch has at least 1/2 of the mean row
 *     all tokens equally          the three parts together are below 0.2
 *     around row 3, column 5      place is the largest part; this patch has the largest weight of the mean row,
 *     mostly the class token      or the class token has
 *     its neighbourhood           position is the largest part; mean distance below 0.95 of that of equal weights,
 *     far away                    above 1.05 of it,
 *     by position                 or neither
 *     by content                  content is the largest part
 *
 * The importance is the mean over images of the absolute value of the sum over tokens of O . dO, where O is the output of
 * the head and dO the gradient of the image's cross-entropy by it: to first order, the change of the loss of an image
 * without the head. */
typedef struct mha_survey_head {
    size_t size;                        /* of this struct, set by the caller; the rest is filled in */
    int64_t block, head;                /* from 0 */
    double entropy;                     /* of a row, in nats */
    double effective;                   /* 1 / sum of squares of a row */
    double largest;                     /* weight of a row */
    double distance;                    /* mean distance from patches to the patches they attend to, in patches */
    double self, previous, next, first; /* weight on the token itself, those before and after it, and the first one */
    double place, position, content;    /* the parts above, in nats */
    double importance;
    const char *words; /* valid as long as the survey */
    int64_t nearest;   /* the most similar head of the same block, from 0; -1: the block has no other */
    double divergence; /* from it: Jensen-Shannon, in nats, 0 to log 2 */
    double cosine;     /* of the two maps */
    bool alike;        /* the two are nearly the same: their divergence is below 0.05 */
} mha_survey_head;

/* Head n, counted through all blocks. MHA_BAD_ARGUMENT if there is none. */
MHA_API mha_status mha_survey_head_get(mha_context *ctx, const mha_survey *survey, int64_t n, mha_survey_head *head);

/* The mean map (T,T) of head n; and for the H heads of a block, (H,H) divergences and cosines of all pairs. Valid as long
 * as the survey. NULL if there is no such head or block. */
MHA_API const double *mha_survey_map(const mha_survey *survey, int64_t n);
MHA_API const double *mha_survey_divergences(const mha_survey *survey, int64_t block);
MHA_API const double *mha_survey_cosines(const mha_survey *survey, int64_t block);

/* ---- 7 · Layers in files ---------------------------------------------------------------------------------------- */

/* One multi-head layer (mha.h, section 8) from a safetensors file, alone in it or inside a larger model:
 *
 *     mha_layer_file_options options = MHA_LAYER_FILE_DEFAULTS;
 *     options.prefix = "h.0.attn.", options.heads = 12;
 *     mha_layer_file *file;
 *     if (mha_layer_file_open(ctx, &file, "gpt2.safetensors", &options)) return puts(mha_context_error(ctx)), 1;
 *     mha_layer_forward(ctx, mha_layer_file_layer(file), out, NULL, &inputs, NULL, NULL);
 *     mha_layer_file_free(file);
 *
 * The names of the tensors decide the family, which has defaults for what a file does not say:
 *
 *     "pytorch"        in_proj_weight, out_proj.weight, ...              nn.MultiheadAttention
 *     "pytorch-split"  q_proj_weight, k_proj_weight, v_proj_weight, ...  the same with widths that differ
 *     "gpt2"           c_attn.weight, c_proj.weight, ...                 weights are transposed; causal
 *     "bert"           self.query.weight, ..., output.dense.weight, ...
 *     "vit"            qkv.weight, proj.weight, ...                      timm's Vision Transformers
 *     "llama"          q_proj.weight, ..., o_proj.weight, ...            causal; rotary with base 10000
 *     "bart"           q_proj.weight, ..., out_proj.weight, ...
 *
 * Sizes follow from the shapes and the number of heads. Heads and everything else that tensors do not show come from
 * the file's metadata (the fields of mha_layer_options by their names; num_heads and other usual synonyms), from the
 * config.json that the transformers library saves with a model, and from the options below. A config.json that
 * contradicts one of the others, has an unknown model_type, or asks for what a layer cannot do, such as a scaled rotary
 * embedding, is an error. */
typedef struct mha_layer_file mha_layer_file;

typedef struct mha_layer_file_options {
    size_t size;        /* of this struct */
    const char *prefix; /* of the layer's tensor names, such as "h.0.attn."; other tensors are ignored. NULL or "": the
                           file is one layer, and a tensor that does not belong to it is an error */
    const char *config; /* path of the model's config.json; NULL: the one next to the file, if there is one; "": none */
    int64_t heads;      /* for files that do not say; 0: as the file says, and they must not differ */
    int64_t kv_heads;   /* likewise; 0 where the file does not say: from the shapes, or as many as heads */
    double rotary_base; /* instead of the one of the metadata or the family; 0: as the file says */
} mha_layer_file_options;

/* clang-format off */
#define MHA_LAYER_FILE_DEFAULTS {sizeof(mha_layer_file_options), NULL, NULL, 0, 0, 0.0}
/* clang-format on */

MHA_API void mha_layer_file_defaults(mha_layer_file_options *options, size_t size);

/* Opens a layer. Its parameters are converted to float32. `options` NULL means MHA_LAYER_FILE_DEFAULTS. On error *file is
 * NULL. Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (a file cannot be read, is damaged, holds no such layer or
 * contradicts the options) or MHA_NO_MEMORY. */
MHA_API mha_status mha_layer_file_open(mha_context *ctx, mha_layer_file **file, const char *path,
                                       const mha_layer_file_options *options);
MHA_API void mha_layer_file_free(mha_layer_file *file); /* and its layer; NULL is legal */

/* The layer, which belongs to `file`: it is not to be freed. NULL for NULL. */
MHA_API mha_layer *mha_layer_file_layer(const mha_layer_file *file);

/* Where a value comes from: of those that give it, the last one below. */
typedef enum mha_layer_source {
    MHA_LAYER_FROM_FAMILY = 0,   /* the default for these names, or for the model_type of config.json */
    MHA_LAYER_FROM_METADATA = 1, /* of the file */
    MHA_LAYER_FROM_CONFIG = 2,   /* config.json */
    MHA_LAYER_FROM_TENSORS = 3, /* their shapes, in a Vision Transformer whose blocks have different numbers of heads */
    MHA_LAYER_FROM_OPTIONS = 4
} mha_layer_source;

/* What was found. mha_layer_shape has all options of the layer. */
typedef struct mha_layer_file_info {
    size_t size;            /* of this struct, set by the caller; the rest is filled in */
    const char *family;     /* "pytorch", "gpt2", ...; see above */
    const char *config;     /* path of the config.json that was read; "" if none was */
    const char *model_type; /* its model_type; "" if it has none, in which case it was ignored */
    int64_t heads, kv_heads;
    bool causal;
    double rotary_base; /* 0: no rotary embedding */
    mha_layer_source heads_from, causal_from, rotary_from;
    int64_t parameters; /* how many numbers, */
    int64_t not_finite; /* and how many of them are NaN or infinite now */
} mha_layer_file_info;
MHA_API mha_status mha_layer_file_about(mha_context *ctx, const mha_layer_file *file, mha_layer_file_info *info);

/* A parameter under its full name in the file, prefix included, and in the file's shape: weights of GPT-2 are
 * transposed, bias_k of PyTorch is (1,1,G*D). */
typedef struct mha_layer_file_part {
    const char *name;  /* valid as long as the file */
    mha_tensor tensor; /* float32, not always dense: a view into the layer or the block */
} mha_layer_file_part;

/* How many there are, and number n: all zero if there is none. `block` as in mha_layer_view: NULL for the parameters
 * themselves, or for example gradients. */
MHA_API int64_t mha_layer_file_part_count(const mha_layer_file *file);
MHA_API mha_layer_file_part mha_layer_file_part_get(const mha_layer_file *file, int64_t n, float *block);

/* Saves any layer under PyTorch's names ("pytorch", or "pytorch-split" if nn.MultiheadAttention could not be this layer),
 * with its options as metadata; a file at `path` is replaced atomically. What is opened again has the same bits.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (a layer that such a file cannot express: over weights of the caller that are not one
 * float32 block, with norms other than RMS with one gain for all heads, with an output width of its own, with rotary
 * frequencies or tables) or MHA_BAD_FILE. */
MHA_API mha_status mha_layer_save(mha_context *ctx, const mha_layer *layer, const char *path);

#ifdef __cplusplus
}
#endif

#endif
