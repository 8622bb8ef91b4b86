/* mha_model: transformers over mha.h.
 *
 * A complete program: which digit is it, and what did the first head look at? Build it with cc digit.c $(pkg-config
 * --cflags --libs mha-model)
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
 *         mha_status status = mha_model_run(ctx, model, &out, &in);
 *         if (status) puts(mha_context_error(ctx));
 *         for (int c = 0; !status && c < 10; c++) printf("%d: %g\n", c, (double)logits[c]);
 *         mha_model_free(model);
 *         mha_context_free(ctx);
 *         return status != MHA_OK;
 *     }
 *
 * Sections, from simple to advanced. To run a model, read this page, 1 and 2; every later section can be read alone.
 *
 *     1  Models        open a checkpoint, say what it is
 *     2  Running       logits, hidden states, attention maps, statistics of heads, the inside of a block
 *     3  Parameters    read them, change them, save them
 *     4  Heads         where they are, models without some of them
 *     5  Data          labelled examples, accuracy and loss
 *     6  Surveys       what every head attends to, over many examples; roles of heads
 *     7  Layer files   one multi-head layer of mha.h, opened from a file and saved
 *     8  Recipes       settings of a model and its training
 *     9  Training      steps, evaluation, history
 *    10  Checkpoints   interrupted and finished runs in files
 *    11  Pruning       removing the least important heads
 *    12  Ablation      scores with heads switched off, contributions of heads to the logits
 *    13  Programs      the steps that a model runs
 *
 * Tokenizers, generation and the heads of text models are in mha_text.h, speech in mha_speech.h.
 *
 * These can be opened: folders as the `transformers` library saves them, of the families that `mha inspect` lists;
 * Vision Transformers under timm's names, as a safetensors file or a folder with timm's config.json; models that `mha
 * train vit` saves; checkpoints of llama2.c. Any other file is refused with one line that says why.
 *
 * The rules of mha.h hold. `options` may be NULL, for the defaults. A function that makes an object leaves NULL in its
 * place on error; every free function takes NULL. One call at a time may use a model, with any context of the device
 * that it was opened for. Numbers in files and recipes have a decimal point in every locale. Letters as in mha.h; T is
 * the number of tokens of a sequence, L the number of blocks of a model. Info structs are filled from their `size` on,
 * which the caller sets. */
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
    int64_t heads;    /* heads per block, for files that do not say; 0, or the number in the file */
    mha_type compute; /* MHA_FLOAT32; or MHA_BFLOAT16: factors of products are rounded to bfloat16 */
    bool gaps;        /* allow missing and unused tensors, in files of `transformers`; the model cannot be run then */
} mha_model_options;

/* clang-format off */
#define MHA_MODEL_DEFAULTS {sizeof(mha_model_options), 0, MHA_FLOAT32, false}
/* clang-format on */

MHA_API void mha_model_defaults(mha_model_options *options, size_t size);

/* Opens a checkpoint. `path` is a file, a folder, or the name of a model on the Hugging Face hub, such as
 * "openai-community/gpt2", in the cache of huggingface_hub (HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub
 * or ~/.cache/huggingface/hub), whose snapshot is that of refs/main. Nothing is downloaded.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (it cannot be read, is damaged or is no known model) or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_model_open(mha_context *ctx, mha_model **model, const char *path,
                                  const mha_model_options *options);
MHA_API void mha_model_free(mha_model *model);

/* The model_type of family n, from 0, of those that can be opened; NULL beyond the last. */
MHA_API const char *mha_model_family(int64_t n);

/* What a model is. A number that does not apply is 0. "The decoder" is the only stack where there is one. */
typedef struct mha_model_info {
    size_t size;            /* of this struct, set by the caller */
    const char *family;     /* such as "vit" or "gpt2" */
    int64_t parameters;     /* how many numbers; shared ones count once */
    int64_t blocks;         /* L, of the decoder */
    int64_t width;          /* M, of the decoder */
    int64_t mlp;            /* width of the hidden layer */
    int64_t heads;          /* H of all blocks together */
    int64_t classes;        /* number of logits of a result */
    int64_t tokens;         /* T, where it is fixed: patches and the class token */
    int64_t channels;       /* channels of an image */
    int64_t rows, columns;  /* size of an image, in pixels */
    int64_t patch;          /* side of a square patch, in pixels */
    bool class_token;       /* the first token is no patch, and the result is read from it */
    bool causal;            /* tokens attend to earlier tokens only */
    float mean, deviation;  /* a pixel x from 0 to 1 is read as (x - mean) / deviation */
    const char *assumed;    /* what the file does not say and was assumed, for people; or "" */
    int64_t block_heads;    /* heads of a block before any were removed */
    const char *norm;       /* kind of norm: "layer" or "rms" */
    float epsilon;          /* epsilon of the norms */
    const char *norm_place; /* "before": x + f(norm(x)); "behind": norm(x + f(x)) */
    bool final_norm;        /* a norm follows the last block */
    const char *activation; /* of the hidden layer: "gelu", "gelu_tanh", "relu", "silu" or "linear" */
    int64_t file_bytes;     /* upper bound of the saved file's size, without notes; 0 if it cannot be saved */
    int64_t vocabulary;     /* number of tokens that can go in; of the encoder, if there is one */
    int64_t encoder_blocks; /* L of the encoder, in a model with two stacks */
    int64_t encoder_width;  /* M of the encoder, in a model with two stacks */
    bool decoder_only;      /* the one stack is a decoder */
    bool pooled;            /* one row of logits for each sequence; false: for each token */
    bool head;              /* has an output layer; false: logits are the `width` numbers of the last block */
    int64_t positions;      /* maximum number of tokens; of the decoder with an encoder of audio; 0: no limit */
    int64_t context;        /* tokens that it was made for, limit or not; 0: its file does not say */
    int64_t bins, frames;   /* size of audio features */
    const char *text_of;    /* model_type of the text and picture model that this one is part of; or NULL */
} mha_model_info;
MHA_API mha_status mha_model_about(mha_context *ctx, const mha_model *model, mha_model_info *info);

/* The file or folder that a model was opened from; NULL if it did not come from a file. Valid as long as the model. */
MHA_API const char *mha_model_path(const mha_model *model);

/* The name of class n, from 0, in config.json (id2label); NULL if there is none. Valid as long as the model. */
MHA_API const char *mha_model_label(const mha_model *model, int64_t n);

/* The whole description as one JSON object: inputs, blocks, output. Valid as long as the model. */
MHA_API const char *mha_model_describe(const mha_model *model);

/* ---- 2 · Running ------------------------------------------------------------------------------------------------ */

/* Pixels are from 0 to 1; the model applies its mean and deviation. Bytes divided by 255.0f give the bits of
 * mha_model_evaluate. Ids are MHA_INT32 or MHA_INT64. Decoders of BART that classify or answer read `tokens`. */
typedef struct mha_model_inputs {
    mha_tensor images;         /* any float type (B,channels,rows,columns): pixels */
    mha_tensor tokens;         /* (B,T): ids of tokens for the first stack */
    mha_tensor types;          /* (B,T): ids of token types; none: 0 */
    mha_tensor lengths;        /* MHA_INT64 (B): tokens of each sequence, the rest is padding; none: T */
    mha_tensor features;       /* any float type (B,bins,2T): audio, in place of tokens */
    mha_tensor decoder_tokens; /* (B,Td): ids of tokens for the decoder of a model with two stacks */
} mha_model_inputs;

/* The inside of one block, each part written if its tensor is not none; F is the width of the hidden layer, S the
 * number of keys: T, or the encoder's rows in cross-attention. All are of any float type. The weights of attention are
 * `maps`.
 *
 *     read = norm(x)           scores = scale * q . k and so on       heads = softmax(scores) v
 *     attended = heads Wo      middle = x + attended
 *     mlp_read = norm(middle)  mlp = hidden W2                        y = middle + mlp
 *
 * Norms are where the model has them: after a sum, `middle` and `y` are normalised; after attention or MLP, `attended`
 * and `mlp` are. An MLP parallel to attention reads x or its norm. Where a model adds to the norm (as BLOOM may),
 * `middle` is read + attended, and `y` is mlp_read + mlp. The inside of a cross-attention starts with the rows after
 * self-attention. */
typedef struct mha_model_inside {
    int64_t attention;   /* number of the block's attention, counted as `maps` are */
    mha_tensor x;        /* (B,T,M): the block's input */
    mha_tensor read;     /* (B,T,M): what attention reads, x or its norm */
    mha_tensor q;        /* (B,H,T,D): queries, as in mha_attention_extras */
    mha_tensor k;        /* (B,G,S,D): keys, as in mha_attention_extras */
    mha_tensor v;        /* (B,G,S,E): values, as in mha_attention_extras */
    mha_tensor scores;   /* (B,H,T,S): scores at MHA_STAGE_MASKED, as the softmax reads them */
    mha_tensor heads;    /* (B,H,T,E): result of each head, also of those that are switched off */
    mha_tensor attended; /* (B,T,M): what attention adds to the rows, after all factors */
    mha_tensor middle;   /* (B,T,M): the rows after attention, and after cross-attention if there is one */
    mha_tensor mlp_read; /* (B,T,M): what the MLP reads */
    mha_tensor hidden;   /* (B,T,F): hidden layer after activation and gate; not in a mixture of experts */
    mha_tensor mlp;      /* (B,T,M): what the MLP adds to the rows */
    mha_tensor y;        /* (B,T,M): the block's output, before the final norm */
} mha_model_inside;

/* Results, each written if it is not none or NULL. Attentions are counted as in section 4. */
typedef struct mha_model_outputs {
    mha_tensor logits;         /* any float type (B,classes), or (B,T,classes) with logits for every token */
    mha_tensor hidden;         /* any float type (L+1,B,T,M): rows before each block, then after the final norm */
    mha_tensor encoder_hidden; /* any float type (L+1,B,T,M): `hidden` of the encoder, with two stacks */
    const mha_tensor *maps;    /* one for each attention: any float type (B,H,Tq,Tk), the weights; padding is 0 */
    const mha_stats *stats;    /* one for each attention: statistics of its heads, as in mha.h */
    const mha_stats_options *stats_options; /* of all statistics; NULL: MHA_STATS_DEFAULTS */
    const mha_model_inside *inside;         /* the inside of one block */
} mha_model_outputs;

/* Runs the model over B sequences. No output may overlap anything else. Logits that are not finite are an error (of
 * overflowing sums, or a pixel that is not finite); maps, statistics and insides have been written then. Rows of
 * logits, (B,T,M) and (B,T,F) in padding are undefined. What is asked for changes no bit of the rest.
 *
 * Rotary embeddings that depend on the length (dynamic, LongRoPE) use each sequence's own, and sequences of unlike
 * length run in groups: if one group overflows, earlier ones have been written.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE, MHA_NO_MEMORY or
 * MHA_NO_DEVICE. */
MHA_API mha_status mha_model_run(mha_context *ctx, mha_model *model, const mha_model_outputs *outputs,
                                 const mha_model_inputs *inputs);

/* Reads a PNG or PGM picture and prepares it as the checkpoint's library does: resized, cropped at the centre,
 * rescaled and normalised, by preprocessor_config.json (image processors of ViT, DeiT and BiT) or timm's config.json.
 * Without such a file, for a model of grey images, as mha_model_fit does.
 *
 *   image (channels,rows,columns), for mha_model_run      seen (rows,columns,3): pixels before rescaling, or NULL
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also if no file says how, or in an unsupported way), MHA_BAD_FILE (also without
 * ink) or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_picture(mha_context *ctx, const mha_model *model, float *image, unsigned char *seen,
                                     const char *path);

typedef enum mha_when { MHA_WHEN_AUTO, MHA_WHEN_YES, MHA_WHEN_NO } mha_when;

typedef struct mha_fit_options {
    size_t size;     /* of this struct */
    mha_when fit;    /* MHA_WHEN_AUTO: unless the picture has the model's size and looks like MNIST's */
    mha_when invert; /* MHA_WHEN_AUTO: if the ink is darker than the paper */
} mha_fit_options;

/* clang-format off */
#define MHA_FIT_DEFAULTS {sizeof(mha_fit_options), MHA_WHEN_AUTO, MHA_WHEN_AUTO}
/* clang-format on */

MHA_API void mha_fit_defaults(mha_fit_options *options, size_t size);

/* What was found in a picture and done with it. */
typedef struct mha_fit {
    size_t size;           /* of this struct, set by the caller */
    bool blank;            /* there is no ink */
    bool inverted;         /* the ink was darker than the paper */
    bool fitted;           /* false: the result has the bytes of the picture, or of the inverted picture */
    bool thickened;        /* strokes were too thin */
    int64_t top, left;     /* upper left corner of the ink, in pixels of the picture */
    int64_t rows, columns; /* size of the ink, in pixels of the picture */
    const char *doubt;     /* why it may be no digit, for people; "" for no doubt. Static */
} mha_fit;

/* Prepares a drawing, scan or photograph of one digit: light ink on black, the ink's bounding box scaled to 20/28 of
 * the sides and its centre of mass in the middle, as far as all ink stays inside. The paper may be dark or light,
 * unevenly lit and noisy; specks are removed, and strokes thinner than MNIST's are thickened.
 *
 *   out (model rows,model columns), bytes: divide by 255.0f for mha_model_run      fit: what was found, or NULL
 *   pixels (rows,columns,channels), bytes, 0 is black: 1 channel is grey, 3 are red, green and blue, 4 with alpha
 *
 * A picture without ink gives a black image and fit->blank.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for a model of other images), MHA_BAD_SHAPE (also for another size with
 * MHA_WHEN_NO), MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_fit(mha_context *ctx, const mha_model *model, unsigned char *out, mha_fit *fit,
                                 const unsigned char *pixels, int64_t rows, int64_t columns, int64_t channels,
                                 const mha_fit_options *options);

/* ---- 3 · Parameters --------------------------------------------------------------------------------------------- */

typedef struct mha_model_parameter {
    const char *name;   /* in the family, such as "blocks.0.attn.qkv.weight"; valid as long as the model */
    mha_tensor tensor;  /* float32, dense and writable. In models of other libraries: as in the file, of any type and
                           strides, read-only, without data if it is missing */
    const char *source; /* the file's tensor that contains it; NULL if that has the same name */
    int64_t same;       /* number of an earlier parameter that is the same memory; -1: none */
} mha_model_parameter;

/* How many parameters there are, and number n in the order of the saved file: all zero if there is none. */
MHA_API int64_t mha_model_parameter_count(const mha_model *model);
MHA_API mha_model_parameter mha_model_parameter_get(const mha_model *model, int64_t n);

/* The parameter of that name; all zero if there is none. */
MHA_API mha_model_parameter mha_model_parameter_find(const mha_model *model, const char *name);

/* With options.gaps: the name of tensor n, from 0, that the model needs and its files lack; and of tensor n that its
 * files have and the model does not use. NULL beyond the last. Valid as long as the model. */
MHA_API const char *mha_model_missing(const mha_model *model, int64_t n);
MHA_API const char *mha_model_unused(const mha_model *model, int64_t n);

/* The place of a parameter. */
typedef struct mha_model_place {
    const char *stack; /* "encoder" or "decoder"; "" for the output */
    int64_t block;     /* from 0; -1 for none */
    const char *part;  /* "input", "norm", "attention", "cross-attention", "mlp", "final norm" or "output"; NULL for
                          a parameter that does not exist */
} mha_model_place;
MHA_API mha_model_place mha_model_parameter_place(const mha_model *model, int64_t n);

typedef struct mha_save_options {
    size_t size;              /* of this struct */
    const char *const *notes; /* (note_count,2): keys and values of the file's metadata, UTF-8; or NULL */
    int64_t note_count;       /* number of notes */
    int64_t shard_bytes;      /* of folders: the most bytes of tensors in one file; 0: 5 * 10^9 */
} mha_save_options;

/* clang-format off */
#define MHA_SAVE_DEFAULTS {sizeof(mha_save_options), NULL, 0, 0}
/* clang-format on */

MHA_API void mha_save_defaults(mha_save_options *options, size_t size);

/* Saves a model, with its parameters as they are now, so that it opens with the same bits. A Vision Transformer whose
 * parameters are one block becomes one file; a file at `path` is replaced atomically. A model of a family of
 * transformers becomes the folder `path`, as save_pretrained writes it: config.json, model.safetensors, or shards and
 * model.safetensors.index.json, and generation_config.json if it was opened with one. The folder is made, or has no
 * model yet; on error nothing is left in it. Notes with keys that describe the model are refused.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for a parameter of a block that is not finite, and for models of timm and
 * llama2.c, text models of larger checkpoints, and models with heads that are off), MHA_BAD_FILE or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_save(mha_context *ctx, const mha_model *model, const char *path,
                                  const mha_save_options *options);

/* ---- 4 · Heads -------------------------------------------------------------------------------------------------- */

/* An attention of the model. With one stack, number n is that of block n. With two stacks, those of the encoder's
 * blocks come first, then those of the decoder's, then the decoder's cross-attentions. */
typedef struct mha_model_attention {
    int64_t block;       /* number in its stack, from 0 */
    int64_t heads;       /* H */
    int64_t kv_heads;    /* G */
    int64_t width;       /* D */
    bool decoder;        /* it belongs to a decoder */
    bool cross;          /* it is a cross-attention */
    int64_t model_width; /* M of its stack */
    int64_t mlp;         /* F of its block; 0: the MLP is a mixture of experts */
} mha_model_attention;

/* How many attentions there are, and number n: all zero if there is none. */
MHA_API int64_t mha_model_attention_count(const mha_model *model);
MHA_API mha_model_attention mha_model_attention_get(const mha_model *model, int64_t n);

/* Makes a smaller model of its own with the heads n for which keep[n], at least one of each attention, as
 * mha_layer_prune does. `keep` (count) counts heads through all attentions. Returns as mha_model_open. */
MHA_API mha_status mha_model_prune(mha_context *ctx, mha_model **smaller, const mha_model *model, const bool *keep,
                                   int64_t count);

/* Saves a model without the heads n for which keep[n] (count) is false, as one safetensors file that mha_model_open
 * reads. In a model of `transformers`, tensors keep names and types, those of attention lose rows and columns, and the
 * config in the metadata lists `pruned_heads`. Heads that share keys and values stay or go together. The file is
 * replaced atomically.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_NO_MEMORY or MHA_BAD_FILE (also for two stacks, ALiBi, norms over all heads,
 * shared layers, and a model that has lost heads already). */
MHA_API mha_status mha_model_save_pruned(mha_context *ctx, const mha_model *model, const char *path, const bool *keep,
                                         int64_t count);

/* ---- 5 · Data --------------------------------------------------------------------------------------------------- */

/* Labelled examples: a training part and a test part. */
typedef struct mha_data mha_data;
typedef enum mha_data_part { MHA_DATA_TRAIN, MHA_DATA_TEST } mha_data_part;

typedef struct mha_data_options {
    size_t size;    /* of this struct */
    bool test_only; /* draw only one synthetic training image */
} mha_data_options;

/* clang-format off */
#define MHA_DATA_DEFAULTS {sizeof(mha_data_options), false}
/* clang-format on */

MHA_API void mha_data_defaults(mha_data_options *options, size_t size);

/* Opens a folder with four files in MNIST's format, plain or gzipped; or draws digits: "synthetic:N" is N for training
 * and N/6 for testing, "synthetic" is synthetic:6000. Synthetic digits are the same on every machine and much easier
 * than MNIST: report an accuracy on them as such.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE or MHA_NO_MEMORY. */
MHA_API mha_status mha_data_open(mha_context *ctx, mha_data **data, const char *place, const mha_data_options *options);
MHA_API void mha_data_free(mha_data *data);

typedef struct mha_data_info {
    size_t size;           /* of this struct, set by the caller */
    const char *name;      /* folder or generator, for people */
    const char *about;     /* for people, such as "60000 + 10000 images of 28 x 28 from FOLDER" */
    bool synthetic;        /* drawn by a program */
    int64_t train;         /* examples of the training part, at least 1 */
    int64_t test;          /* examples of the test part, at least 1 */
    int64_t rows, columns; /* size of an image, in pixels */
    int64_t classes;       /* number of classes */
} mha_data_info;
MHA_API mha_status mha_data_about(mha_context *ctx, const mha_data *data, mha_data_info *info);

/* Image n of a part: (rows,columns) bytes, 0 for paper and 255 for ink, valid as long as the data; NULL if there is
 * none. Its label, from 0; -1 if there is none. */
MHA_API const unsigned char *mha_data_image(const mha_data *data, mha_data_part part, int64_t n);
MHA_API int64_t mha_data_label(const mha_data *data, mha_data_part part, int64_t n);

/* Whether the model reads such examples and has their classes: MHA_OK, or MHA_BAD_SHAPE and a line about the
 * difference. */
MHA_API mha_status mha_data_check(mha_context *ctx, const mha_data *data, const mha_model *model);

/* The quality of predictions. */
typedef struct mha_score {
    int64_t count;   /* labels */
    int64_t correct; /* labels with the largest logit, the first of equals */
    double loss;     /* mean cross-entropy */
} mha_score;

/* Predictions for `count` examples of a part, from example `first` on.
 *
 *   logits (count,classes), any float type, or MHA_NO_TENSOR        score, or NULL
 *
 * Logits that are not finite are an error, as in mha_model_run.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for examples that do not exist), MHA_BAD_SHAPE (also as mha_data_check),
 * MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE, MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_model_evaluate(mha_context *ctx, mha_model *model, mha_tensor logits, mha_score *score,
                                      const mha_data *data, mha_data_part part, int64_t first, int64_t count);

/* ---- 6 · Surveys ------------------------------------------------------------------------------------------------ */

/* What every head of a model attends to, over many images. */
typedef struct mha_survey mha_survey;

/* Numbers of images, evenly spaced over the part; 0, or more than there are, is all of them. */
typedef struct mha_survey_options {
    size_t size;               /* of this struct */
    int64_t images;            /* images for entropy, effective and largest */
    int64_t close_images;      /* how many of these to use for what needs maps; rounded to groups of a few images */
    int64_t importance_images; /* images for the importance, which needs a backward pass; at most `images` */
} mha_survey_options;

/* clang-format off */
#define MHA_SURVEY_DEFAULTS {sizeof(mha_survey_options), 0, 400, 400}
/* clang-format on */

MHA_API void mha_survey_defaults(mha_survey_options *options, size_t size);

/* Surveys the heads of a model over a part of the data. The model may be changed or freed afterwards.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for weights or logits that are not finite, and for activation "linear", which
 * has no gradient), MHA_BAD_SHAPE as mha_data_check, MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_survey_make(mha_context *ctx, mha_survey **survey, mha_model *model, const mha_data *data,
                                   mha_data_part part, const mha_survey_options *options);
MHA_API void mha_survey_free(mha_survey *survey);

typedef struct mha_survey_info {
    size_t size;               /* of this struct, set by the caller */
    int64_t images;            /* as used */
    int64_t close_images;      /* as used */
    int64_t importance_images; /* as used */
    int64_t blocks;            /* L */
    int64_t heads;             /* of all blocks together */
    int64_t tokens;            /* T */
    int64_t rows, columns;     /* of the grid of patches */
    bool class_token;          /* the first token is the class token */
} mha_survey_info;
MHA_API mha_status mha_survey_about(mha_context *ctx, const mha_survey *survey, mha_survey_info *info);

/* A head. Numbers are means over images and rows; a row has the weights of one query token.
 *
 * log T, the entropy of equal weights, minus the head's entropy is the sum of three parts, none of them negative. With
 * the mean map, the mean of the weights (T,T) over images:
 *
 *     place      log T - entropy of the mean row of the mean map: keys that all queries attend to in all images
 *     position   entropy of that mean row - entropy of the mean map's rows: what depends on the query's position
 *     content    entropy of the mean map's rows - entropy of single rows: what depends on the image
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
 * With O the head's output and dO the gradient of an image's cross-entropy by it, the importance is the mean over
 * images of |sum over tokens of O . dO|: to first order, the change of the loss without the head. */
typedef struct mha_survey_head {
    size_t size;       /* of this struct, set by the caller */
    int64_t block;     /* from 0 */
    int64_t head;      /* number in its block, from 0 */
    double entropy;    /* entropy of a row, in nats */
    double effective;  /* 1 / sum of squares of a row */
    double largest;    /* largest weight of a row */
    double distance;   /* weighted distance from a patch to the patches it attends to, in patches */
    double self;       /* weight on the token itself */
    double previous;   /* weight on the token before */
    double next;       /* weight on the token after */
    double first;      /* weight on the first token */
    double place;      /* part of the entropy, in nats: see above */
    double position;   /* part of the entropy, in nats: see above */
    double content;    /* part of the entropy, in nats: see above */
    double importance; /* see above */
    const char *words; /* see above; valid as long as the survey */
    int64_t nearest;   /* the most similar head of the block, from 0; -1: there is no other */
    double divergence; /* Jensen-Shannon divergence from `nearest`, in nats, 0 to log 2 */
    double cosine;     /* cosine of the maps of this head and `nearest` */
    bool alike;        /* the divergence is below 0.05 */
} mha_survey_head;

/* Head n, counted through all blocks. Returns MHA_OK or MHA_BAD_ARGUMENT (there is none). */
MHA_API mha_status mha_survey_head_get(mha_context *ctx, const mha_survey *survey, int64_t n, mha_survey_head *head);

/* The mean map (T,T) of head n; divergences and cosines (H,H) of all pairs of heads of a block. Valid as long as the
 * survey. NULL if there is no such head or block. */
MHA_API const double *mha_survey_map(const mha_survey *survey, int64_t n);
MHA_API const double *mha_survey_divergences(const mha_survey *survey, int64_t block);
MHA_API const double *mha_survey_cosines(const mha_survey *survey, int64_t block);

/* Roles: what heads attend to in drawings such as digits. A role gives every patch a weight. A head has the role if
 * its attention follows these weights from image to image, or from query to query:
 *
 *     mha_roles *roles;
 *     mha_role_score score = {.size = sizeof score};
 *     mha_status status = mha_roles_make(ctx, &roles, model, data, MHA_DATA_TEST, NULL);
 *     int64_t best = mha_roles_best(roles, 0, MHA_ROLE_FROM_CLASS, false);
 *     if (!status && best >= 0) status = mha_roles_get(ctx, roles, 0, MHA_ROLE_FROM_CLASS, best, &score);
 *     if (score.named) printf("the class token attends to %s: %.2f\n", mha_role_name(best), score.score);
 *     mha_roles_free(roles);
 *
 * Role n has a key for programs, a name and a short meaning; NULL if there is none. Roles by position come first:
 * their weights depend on the positions of query and key. The weights of roles by content depend on image and key.
 *
 *     local, global            exp(-d^2/2) and d, with d the distance of query and key in patches
 *     top_bottom, left_right   exp(-d^2/2), with d the distance of the key from the mirror image of the query
 *     ink, background          the mean m of the pixels, and 1 - m
 *     horizontal, vertical,    from the patch's structure tensor (sum of the products of the pixels' gradients), the
 *     rising, falling          part of strokes in this direction: - | / and \
 *     ends, corners, curves    pixels of the strokes' middle line where it ends, turns by at least 60 degrees within 3
 *                              pixels, or by 30 within 5 without a corner (for 28 x 28; else in proportion)
 *     loops                    background that has no path to the border of the image
 *     gaps                     other background with ink in at least 6 of 8 directions
 *     centre                   the centre of mass of the ink
 *
 * Weights at single pixels are distributed to the nearest patches by linear interpolation. */
MHA_API const char *mha_role_key(int64_t n);
MHA_API const char *mha_role_name(int64_t n);
MHA_API const char *mha_role_meaning(int64_t n);
MHA_API bool mha_role_is_position(int64_t n);

typedef struct mha_roles mha_roles;

typedef struct mha_roles_options {
    size_t size;      /* of this struct */
    int64_t images;   /* evenly spaced over the part; 0, or more than there are, is all of them */
    int64_t shuffles; /* random pairings of the test, from 1 to 1000000; p is at least 1 / (shuffles + 1) */
    double level;     /* level of significance: the largest p of a named role, from 0 to 1 */
    uint64_t seed;    /* seed of the shuffles */
} mha_roles_options;

/* clang-format off */
#define MHA_ROLES_DEFAULTS {sizeof(mha_roles_options), 400, 999, 0.005, 1}
/* clang-format on */

MHA_API void mha_roles_defaults(mha_roles_options *options, size_t size);

/* Measures all roles of all heads of a model over a part of the data. The model may be changed or freed afterwards.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for weights or logits that are not finite), MHA_BAD_SHAPE as mha_data_check,
 * MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_roles_make(mha_context *ctx, mha_roles **roles, mha_model *model, const mha_data *data,
                                  mha_data_part part, const mha_roles_options *options);
MHA_API void mha_roles_free(mha_roles *roles);

typedef struct mha_roles_info {
    size_t size;      /* of this struct, set by the caller */
    int64_t images;   /* as used */
    int64_t shuffles; /* as used */
    int64_t blocks;   /* L */
    int64_t heads;    /* of all blocks together */
    double level;     /* as used */
    bool class_token; /* there are scores of the class token */
} mha_roles_info;
MHA_API mha_status mha_roles_about(mha_context *ctx, const mha_roles *roles, mha_roles_info *info);

/* Whose attention is measured: the mean over all patches as queries, or the class token, for roles by content only. */
typedef enum mha_role_from { MHA_ROLE_FROM_PATCHES = 0, MHA_ROLE_FROM_CLASS = 1 } mha_role_from;

/* How well a head fits a role.
 *
 * By content, the attention that each patch receives is correlated with the role's weights of the same image, both
 * without their means over images. The null hypothesis is that images do not matter: maps are paired with weights of
 * other images. By position, the mean map is correlated with the weights, both without the means of rows and columns.
 * The null hypothesis is that places do not matter: the keys of the mean map are shuffled. That destroys the
 * smoothness of a map as well, so a small p says only that places matter, and the score says how closely they follow
 * the role.
 *
 * A role is named if p <= level, score >= 0.15 and variation >= 0.05. If attention and images are unrelated, the
 * probability that any role of any head is named is at most `level`. */
typedef struct mha_role_score {
    size_t size;      /* of this struct, set by the caller */
    int64_t block;    /* from 0 */
    int64_t head;     /* number in its block, from 0 */
    double score;     /* correlation of attention and weights, from -1 to 1 */
    double lift;      /* weight on the role's patches, relative to what the means alone would give */
    double variation; /* root mean square of the attention without its means, relative to that of the means */
    double z;         /* covariance, in standard deviations of its distribution over the shuffles */
    double p;         /* share of shuffles in which the largest z of all heads and roles is as large */
    double p_alone;   /* share of shuffles in which the z of this head and role is as large */
    bool named;       /* see above */
} mha_role_score;

/* The score of head n, counted through all blocks. Returns MHA_OK or MHA_BAD_ARGUMENT (no such head, role or class
 * token; or a role by position from the class token). */
MHA_API mha_status mha_roles_get(mha_context *ctx, const mha_roles *roles, int64_t n, mha_role_from from, int64_t role,
                                 mha_role_score *score);

/* The named role of head n with the highest score, by position or by content; -1 if none is named. */
MHA_API int64_t mha_roles_best(const mha_roles *roles, int64_t n, mha_role_from from, bool position);

/* ---- 7 · Layer files -------------------------------------------------------------------------------------------- */

/* One multi-head layer (mha.h, section 8) from a safetensors file, alone in it or inside a larger model:
 *
 *     mha_layer_file_options options = MHA_LAYER_FILE_DEFAULTS;
 *     options.prefix = "h.0.attn.", options.heads = 12;
 *     mha_layer_file *file;
 *     mha_status status = mha_layer_file_open(ctx, &file, "gpt2.safetensors", &options);
 *     if (!status) status = mha_layer_forward(ctx, mha_layer_file_layer(file), out, NULL, &inputs, NULL, NULL);
 *     if (status) puts(mha_context_error(ctx));
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
 * Other modules are recognized by usual names of their linear layers (W_q, ..., W_o; query_linear, ...; to_q, ...,
 * to_out.0, and more), or as a list of one module per head (heads.0.W_query.weight, ...); their family is these names.
 * A causal mask among their buffers (mask, tril) makes the layer causal; any other tensor is an error. For other names
 * give q, k, v and out below. A prefix that all tensors of a file share may be omitted.
 *
 * Sizes follow from the shapes and the number of heads. What tensors do not show comes from the file's metadata
 * (fields of mha_layer_options; num_heads and other synonyms), from the config.json of `transformers`, and from the
 * options. With a config.json the layer is that of its model, of any family that mha_model_open knows, and computes what
 * it computes there. ALiBi and biases by distance (T5) are an error, since a layer has neither; so are a position beyond
 * those for which a rotary embedding is the same for all lengths (dynamic, LongRoPE), a config.json that contradicts
 * the others or has an unknown model_type, and a tensor that its model lacks or does not have. */
typedef struct mha_layer_file mha_layer_file;

typedef struct mha_layer_file_options {
    size_t size;        /* of this struct */
    const char *prefix; /* of the layer's tensor names, such as "h.0.attn."; others are ignored. NULL or "": all tensors
                           of the file belong to the layer */
    const char *config; /* path of config.json; NULL: the one beside the file, if there is one; "": none */
    int64_t heads;      /* number of query heads, for files that do not say; 0, or the number in the file */
    int64_t kv_heads;   /* number of key/value heads; 0: as the file says, or from the shapes, or as many as heads */
    double rotary_base; /* replaces the one of the metadata or the family; 0: as the file says */

    /* The linear layers of a file with unusual names: NAME, after the prefix, for NAME.weight (out,in) and NAME.bias,
     * if there is one; or the name of a weight, with ".T" after it if it is (in,out). "{h}" stands for the number of a
     * head, from 0: one module per head. NULL: the usual names. Without a prefix, all tensors of the file must be
     * named. */
    const char *q, *k, *v, *out;
} mha_layer_file_options;

/* clang-format off */
#define MHA_LAYER_FILE_DEFAULTS {sizeof(mha_layer_file_options), NULL, NULL, 0, 0, 0.0, NULL, NULL, NULL, NULL}
/* clang-format on */

MHA_API void mha_layer_file_defaults(mha_layer_file_options *options, size_t size);

/* Opens a layer of a safetensors file, or of a model's folder, and converts its parameters to float32.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (it cannot be read, is damaged, has no such layer or contradicts the
 * options) or MHA_NO_MEMORY. */
MHA_API mha_status mha_layer_file_open(mha_context *ctx, mha_layer_file **file, const char *path,
                                       const mha_layer_file_options *options);
MHA_API void mha_layer_file_free(mha_layer_file *file); /* and its layer; NULL is legal */

/* The layer, which `file` owns and frees. NULL for NULL. */
MHA_API mha_layer *mha_layer_file_layer(const mha_layer_file *file);

/* Where a value comes from. The last of those that give it decides. */
typedef enum mha_layer_source {
    MHA_LAYER_FROM_FAMILY = 0,   /* default of the names, or of the model_type in config.json */
    MHA_LAYER_FROM_METADATA = 1, /* metadata of the file */
    MHA_LAYER_FROM_CONFIG = 2,   /* config.json */
    MHA_LAYER_FROM_TENSORS =
        3, /* heads: a list of heads, or the shapes of a Vision Transformer whose blocks have unequal
                                    numbers of heads; causal: a mask */
    MHA_LAYER_FROM_OPTIONS = 4 /* options of the call */
} mha_layer_source;

/* What was found. mha_layer_shape has all options of the layer. */
typedef struct mha_layer_file_info {
    size_t size;                  /* of this struct, set by the caller */
    const char *family;           /* "pytorch", "gpt2", ..., the names of the linear layers, or a model_type */
    const char *config;           /* path of the config.json that was read; "" if none was */
    const char *model_type;       /* of config.json; "" if it has none and was ignored */
    int64_t heads;                /* H */
    int64_t kv_heads;             /* G */
    bool causal;                  /* the layer is causal */
    double rotary_base;           /* 0: no rotary embedding */
    mha_layer_source heads_from;  /* source of `heads` */
    mha_layer_source causal_from; /* source of `causal` */
    mha_layer_source rotary_from; /* source of `rotary_base` */
    int64_t parameters;           /* how many numbers */
    int64_t not_finite;           /* how many of the numbers are NaN or infinite now */
} mha_layer_file_info;
MHA_API mha_status mha_layer_file_about(mha_context *ctx, const mha_layer_file *file, mha_layer_file_info *info);

/* A parameter in the file's shape: weights of GPT-2 are transposed, bias_k of PyTorch is (1,1,G*D). Where a tensor has
 * queries, keys and values in turns, as those of GPT-NeoX and CodeGen do, each is a parameter: NAME.q, NAME.k, NAME.v. */
typedef struct mha_layer_file_parameter {
    const char *name;  /* in the file, prefix included; valid as long as the file */
    mha_tensor tensor; /* float32, with any strides: a view of the layer or the block */
} mha_layer_file_parameter;

/* How many parameters there are, and number n: all zero if there is none. `block` as in mha_layer_view. */
MHA_API int64_t mha_layer_file_parameter_count(const mha_layer_file *file);
MHA_API mha_layer_file_parameter mha_layer_file_parameter_get(const mha_layer_file *file, int64_t n, float *block);

/* Saves any layer under PyTorch's names ("pytorch", or "pytorch-split" if nn.MultiheadAttention could not be this
 * layer), with its options as metadata, so that it opens with the same bits. A file at `path` is replaced atomically.
 * Returns MHA_OK, MHA_BAD_FILE or MHA_BAD_ARGUMENT (also for a layer that such a file cannot express: over weights
 * that are not one float32 block; with norms other than RMS with one gain for all heads, an output width of its own,
 * rotary frequencies or tables). */
MHA_API mha_status mha_layer_save(mha_context *ctx, const mha_layer *layer, const char *path);

/* ---- 8 · Recipes ------------------------------------------------------------------------------------------------ */

/* All settings of a model and its training, as keys and values in text form: "width" is "64", "lr" is "0.0025". Equal
 * recipes give the same model on the same data. */
typedef struct mha_recipe mha_recipe;

/* The name of preset n and a line about it; NULL if there is none. Preset 0 is the default. */
MHA_API const char *mha_preset_name(int64_t n);
MHA_API const char *mha_preset_about(int64_t n);

/* Makes a recipe with the values of a preset; NULL means the default.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for an unknown preset) or MHA_NO_MEMORY. */
MHA_API mha_status mha_recipe_create(mha_context *ctx, mha_recipe **recipe, const char *preset);
MHA_API mha_status mha_recipe_copy(mha_context *ctx, mha_recipe **copy, const mha_recipe *recipe);
MHA_API void mha_recipe_free(mha_recipe *recipe);

/* The preset that a recipe was made from. */
MHA_API const char *mha_recipe_preset(const mha_recipe *recipe);

/* Key n, from 0; NULL after the last. */
MHA_API const char *mha_recipe_key(const mha_recipe *recipe, int64_t n);

/* The meaning of a key, NULL if there is no such key; and whether its values are words, not numbers. */
MHA_API const char *mha_recipe_meaning(const mha_recipe *recipe, const char *key);
MHA_API bool mha_recipe_is_word(const mha_recipe *recipe, const char *key);

/* The value of a key, valid until it is set or the recipe is freed. "": not set, depends on the data. NULL: no such
 * key. */
MHA_API const char *mha_recipe_get(const mha_recipe *recipe, const char *key);

/* Sets a value. An error's text begins with the key: "epochs must be a whole number from 1 to 100000, not 'ten'".
 * Returns MHA_OK or MHA_BAD_ARGUMENT. */
MHA_API mha_status mha_recipe_set(mha_context *ctx, mha_recipe *recipe, const char *key, const char *value);

/* ---- 9 · Training ----------------------------------------------------------------------------------------------- */

/* The training of one model: in each epoch all examples in random order, with augmentation; a step is one AdamW step
 * on the mean cross-entropy of a batch.
 *
 *     mha_training_report report = {.size = sizeof report};
 *     mha_status status = mha_recipe_create(ctx, &recipe, "demo");
 *     if (!status) status = mha_recipe_set(ctx, recipe, "epochs", "2");
 *     if (!status) status = mha_training_create(ctx, &training, recipe, data);
 *     while (!status && report.state == MHA_TRAINING_STEPPED) status = mha_training_step(ctx, training, &report);
 *     if (!status) status = mha_training_evaluate(ctx, training, MHA_TRAINING_TEST, &score);
 *     if (!status) status = mha_training_model(ctx, &model, training); */
typedef struct mha_training mha_training;

/* Initializes a model for these data from a recipe, which is copied. Context and data must outlive the training, and
 * all its calls must use this context.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for more held-out examples than there are), MHA_NO_DEVICE (not the CPU) or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_training_create(mha_context *ctx, mha_training **training, const mha_recipe *recipe,
                                       const mha_data *data);
MHA_API void mha_training_free(mha_training *training);

/* The recipe, with the values that depend on the data filled in. Valid as long as the training. */
MHA_API const mha_recipe *mha_training_recipe(const mha_training *training);

typedef struct mha_training_info {
    size_t size;              /* of this struct, set by the caller */
    int64_t parameters;       /* how many numbers */
    int64_t epochs;           /* epochs of the whole run */
    int64_t batch;            /* examples per step */
    int64_t steps_per_epoch;  /* full batches of an epoch */
    int64_t step;             /* steps taken so far */
    int64_t epochs_begun;     /* epochs with a history */
    int64_t train;            /* examples to train on */
    int64_t held_out;         /* examples to evaluate on during training */
    int64_t test;             /* examples to evaluate on at the end */
    bool averaged;            /* a moving average of the weights is evaluated and saved */
    const char *data;         /* identifies the data: counts, sizes and a hash; valid as long as the training */
    int64_t checkpoint_bytes; /* upper bound of the size of a checkpoint, in any epoch */
    int64_t model_bytes;      /* upper bound of the size of the finished model */
} mha_training_info;
MHA_API mha_status mha_training_about(mha_context *ctx, const mha_training *training, mha_training_info *info);

typedef enum mha_training_state {
    MHA_TRAINING_STEPPED, /* a step was taken */
    MHA_TRAINING_DONE,    /* all steps had been taken; nothing was done */
    MHA_TRAINING_DIVERGED /* loss or gradient is not finite; parameters and history are unchanged */
} mha_training_state;

typedef struct mha_training_report {
    size_t size;              /* of this struct, set by the caller */
    mha_training_state state; /* what happened; all numbers below are 0 if nothing was done */
    int64_t epoch;            /* epoch of the batch, from 0 */
    int64_t step;             /* number of the step, from 0 */
    double loss;              /* loss of the batch */
    double norm;              /* norm of the gradient, before clipping */
    double rate;              /* learning rate */
    int64_t examples;         /* examples of the batch */
    int64_t correct;          /* examples that were predicted correctly */
} mha_training_report;

/* Takes the next step, if there is one. Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_training_step(mha_context *ctx, mha_training *training, mha_training_report *report);

typedef enum mha_training_part {
    MHA_TRAINING_HELD_OUT, /* held-out examples */
    MHA_TRAINING_TEST,     /* test examples */
    MHA_TRAINING_SEEN      /* the first training examples, as many as are held out or, if none are, as there are test
                              examples. Their loss, compared with the held-out loss, shows overfitting */
} mha_training_part;

/* Evaluates the weights, or their moving average, without augmentation and smoothing. A held-out score is added to the
 * history of the current epoch, unless its loss is not finite, which is no error; without held-out examples it is all
 * zero.
 * Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_training_evaluate(mha_context *ctx, mha_training *training, mha_training_part part,
                                         mha_score *score);

/* The history of an epoch. */
typedef struct mha_epoch_info {
    size_t size;          /* of this struct, set by the caller */
    int64_t examples;     /* examples trained on so far */
    int64_t correct;      /* examples predicted correctly, as augmented */
    double loss;          /* mean loss of these examples */
    double rate;          /* learning rate of the last step */
    mha_score held_out;   /* last evaluation; its count is 0 if there was none */
    double seconds;       /* time spent on steps */
    double other_seconds; /* time spent on evaluation and checkpoints */
} mha_epoch_info;

/* The history of epoch n, from 0. Returns MHA_OK or MHA_BAD_ARGUMENT (it has not begun). */
MHA_API mha_status mha_training_epoch(mha_context *ctx, const mha_training *training, int64_t n, mha_epoch_info *info);

/* A model of its own with the weights of mha_training_evaluate, as if opened from the finished file with
 * MHA_MODEL_DEFAULTS. Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_training_model(mha_context *ctx, mha_model **model, const mha_training *training);

/* ---- 10 · Checkpoints ------------------------------------------------------------------------------------------- */

/* The output file of a training: a checkpoint during the run, a model at the end. With statuses checked as in section
 * 9:
 *
 *     mha_checkpoint_claim(ctx, &file, "vit.safetensors");
 *     if (resume) {
 *         mha_checkpoint_read(ctx, file);
 *         mha_training_resume(ctx, &training, file, data);
 *     } else mha_training_create(ctx, &training, recipe, data);
 *     ... steps, and now and then mha_checkpoint_save(ctx, file, training); ...
 *     mha_training_evaluate(ctx, training, MHA_TRAINING_TEST, &score);
 *     mha_checkpoint_finish(ctx, file, training);
 *     mha_checkpoint_free(file);
 *
 * A checkpoint is a model file, which mha_model_open opens, with the averaged weights and the state of the training. A
 * resumed run gives the same bits as an uninterrupted one. */
typedef struct mha_checkpoint mha_checkpoint;

/* Locks the file against other processes and other claims of this one, until it is freed, by a file .mha-lock-NAME in
 * its folder. The file itself is neither read nor written.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (also if it is locked, or cannot be written) or MHA_NO_MEMORY. */
MHA_API mha_status mha_checkpoint_claim(mha_context *ctx, mha_checkpoint **file, const char *path);
MHA_API void mha_checkpoint_free(mha_checkpoint *file);

/* Notes are saved in checkpoints, not in the finished model. At most 8; a key is up to 31 lower-case letters and
 * underscores, except "version", "step", "recipe", "preset" and "set". `value` NULL removes a note; one that is not
 * UTF-8 or has control characters is not saved. The value of a note, NULL if there is none, is valid until it is set
 * or the file is read or freed. */
MHA_API mha_status mha_checkpoint_set_note(mha_context *ctx, mha_checkpoint *file, const char *key, const char *value);
MHA_API const char *mha_checkpoint_note(const mha_checkpoint *file, const char *key);

/* Write a checkpoint; or the finished model, with notes on its origin (recipe, preset, seed, completed epochs,
 * trained_on and test_accuracy), for which the test part must have been evaluated since the last step. The file is
 * replaced atomically. Return MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE or MHA_NO_MEMORY. */
MHA_API mha_status mha_checkpoint_save(mha_context *ctx, mha_checkpoint *file, mha_training *training);
MHA_API mha_status mha_checkpoint_finish(mha_context *ctx, mha_checkpoint *file, mha_training *training);

/* Whether saving failed because another process replaced the file, which happens only on file systems without
 * locks. */
MHA_API bool mha_checkpoint_is_lost(const mha_checkpoint *file);

/* Reads and validates the checkpoint, with its notes. Paths in the notes of a checkpoint are text: no file is opened
 * or written because of them.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (it cannot be read, is a finished model, is no checkpoint or is
 * damaged) or MHA_NO_MEMORY. */
MHA_API mha_status mha_checkpoint_read(mha_context *ctx, mha_checkpoint *file);

/* The recipe of the checkpoint that was read; NULL if none was. Valid until the file is read again or freed. */
MHA_API const mha_recipe *mha_checkpoint_recipe(const mha_checkpoint *file);

/* Makes a training that continues the checkpoint that was read. Returns as mha_training_create, and MHA_BAD_FILE for a
 * checkpoint that is inconsistent or belongs to other data. */
MHA_API mha_status mha_training_resume(mha_context *ctx, mha_training **training, const mha_checkpoint *file,
                                       const mha_data *data);

/* ---- 11 · Pruning ----------------------------------------------------------------------------------------------- */

/* A round of pruning, valid during the call of `watch`. New members may be added at the end. */
typedef struct mha_prune_round {
    int64_t number;      /* from 1; 0 for the report before the first round */
    int64_t heads;       /* remaining heads of all attentions */
    const int64_t *gone; /* (gone_count): heads removed in this round, numbered as in the original model */
    int64_t gone_count;  /* number of heads removed; 0 in the report of the final fine-tuning */
    mha_score cut;       /* held-out score before fine-tuning */
    mha_score tuned;     /* held-out score after fine-tuning */
    bool undone;         /* accuracy dropped too far: this round was undone and is the last */
} mha_prune_round;

typedef struct mha_prune_options {
    size_t size;        /* of this struct */
    int64_t keep;       /* heads to keep, of all attentions together; 0: one of each */
    double max_drop;    /* allowed drop of held-out accuracy; 0.003 is 0.3 points */
    int64_t rounds;     /* number of rounds; 0: one head per round */
    int64_t sample;     /* training examples to measure importance with */
    int64_t held_out;   /* last training examples, used only to evaluate; 0: a twelfth */
    int64_t tune;       /* training steps after each round */
    int64_t finish;     /* training steps after the last round */
    int64_t batch;      /* examples per step; no more than there are */
    double tune_rate;   /* initial learning rate after a round; it decays to 0 */
    double finish_rate; /* initial learning rate after the last round; it decays to 0 */
    uint64_t seed;      /* seed of the order of examples */
    bool (*watch)(void *arg, const mha_prune_round *round); /* called before the first round and after each; false stops
                                                               with the model so far; or NULL */
    void (*step)(void *arg, int64_t step, int64_t steps);   /* called after each step of fine-tuning; or NULL */
    void *arg;                                              /* first argument of both functions */
} mha_prune_options;

/* clang-format off */
#define MHA_PRUNE_DEFAULTS \
    {sizeof(mha_prune_options), 0, 1.0, 0, 1000, 0, 50, 0, 64, 1e-4, 1e-3, 1, NULL, NULL, NULL}
/* clang-format on */

MHA_API void mha_prune_defaults(mha_prune_options *options, size_t size);

/* Makes a smaller model in several rounds. Each measures the importance of all remaining heads, removes the least
 * important ones, as mha_model_prune does, and fine-tunes the rest. `watch` and `step` run on the caller's thread and
 * must not use this context or free the model or the data.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE as mha_data_check, MHA_NO_DEVICE or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_prune_and_tune(mha_context *ctx, mha_model **smaller, const mha_model *model,
                                            const mha_data *data, const mha_prune_options *options);

/* ---- 12 · Ablation ---------------------------------------------------------------------------------------------- */

/* Switches heads off: the columns of Wo of every head n with off[n] become zero in the parameters, also in a saved
 * file. `off` (count) counts heads through all attentions; all heads of a block may be off. The model keeps its size.
 * Parameters that lie in a file are copied first; existing generations keep the heads, and mha_model_save_pruned
 * writes the file's. Only for one stack of blocks. Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_switch_off(mha_context *ctx, mha_model *model, const bool *off, int64_t count);

typedef struct mha_ablate_options {
    size_t size;    /* of this struct */
    int64_t images; /* evenly spaced over the part; 0, or more than there are, is all of them */
} mha_ablate_options;

/* clang-format off */
#define MHA_ABLATE_DEFAULTS {sizeof(mha_ablate_options), 0}
/* clang-format on */

MHA_API void mha_ablate_defaults(mha_ablate_options *options, size_t size);

/* Scores of a model with different heads switched off in each of several cases. The model is not changed.
 *
 *   off (cases,heads): heads counted through all attentions        scores (cases)
 *   correct (cases,classes): correct predictions of each label, or NULL
 *   labels (classes): examples of each label, or NULL
 *
 * The scores are those of mha_model_evaluate after mha_model_switch_off, up to rounding. A case costs the part of a
 * pass from the first block with a head that is off; equal cases are computed once.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for logits that are not finite), MHA_BAD_SHAPE as mha_data_check,
 * MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_model_ablate(mha_context *ctx, mha_model *model, mha_score *scores, int64_t *correct,
                                    int64_t *labels, const bool *off, int64_t cases, const mha_data *data,
                                    mha_data_part part, const mha_ablate_options *options);

/* What each part of a model adds to the logits of B images on the direct path: through the residual stream, the final
 * norm, with the image's own deviation taken as a constant, and the classification head.
 *
 *   out (B,heads+L+2,classes), any float type. The rows of an image:
 *       0                 the embedding: patches, class token and positions
 *       1 .. heads        the heads, counted through all attentions: the columns of Wo of a head times its output
 *       heads + 1 ..      the MLPs of the L blocks
 *       heads + L + 1     the biases of Wo, of the final norm and of the classification head
 *
 * These rows add up to the image's logits, up to rounding. `out` must not overlap anything else.
 * Returns as mha_model_run; MHA_BAD_ARGUMENT also if the norms of the model are not "before". */
MHA_API mha_status mha_model_contributions(mha_context *ctx, mha_model *model, mha_tensor out,
                                           const mha_model_inputs *inputs);

/* ---- 13 · Programs ---------------------------------------------------------------------------------------------- */

/* A model runs as a flat list of steps, each of which reads values, writes values and has weights. */
typedef struct mha_program mha_program;

typedef struct mha_program_options {
    size_t size;            /* of this struct */
    int64_t tokens;         /* of a sequence, for the numbers of steps; 0: as many as it always has, or 1 */
    int64_t encoder_tokens; /* the same of an encoder before a decoder */
    bool training;          /* the program that is differentiated */
} mha_program_options;

/* clang-format off */
#define MHA_PROGRAM_DEFAULTS {sizeof(mha_program_options), 0, 0, false}
/* clang-format on */

MHA_API void mha_program_defaults(mha_program_options *options, size_t size);

/* Compiles the program of a model; nothing runs. `options` NULL means MHA_PROGRAM_DEFAULTS. On error *program is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_program_make(mha_context *ctx, mha_program **program, const mha_model *model,
                                    const mha_program_options *options);
MHA_API void mha_program_free(mha_program *program); /* NULL is legal */

/* A step. Lists are separated by ", " and empty if there is nothing; texts are valid as long as the program. */
typedef struct mha_program_step {
    size_t size;           /* of this struct, set by the caller */
    const char *operation; /* "norm", "product", "attention", ... */
    const char *stack;     /* "encoder" or "decoder"; "" for the output */
    int64_t block;         /* from 0; -1 for none */
    const char *reads;     /* values, or what goes in: "tokens", "images", "features" */
    const char *writes;    /* values that later steps read */
    const char *weights;   /* names of parameters, as in mha_model_parameter: their tensors in the file */
    const char *shape;     /* of the first value that it writes: "rows x 768" */
    const char *kept;      /* of a program for training: values that stay for the backward pass */
    double operations;     /* multiplications and additions, for one sequence */
    double bytes;          /* that it reads and writes, its weights included, for one sequence */
} mha_program_step;

/* How many steps there are, and step n. Returns MHA_OK or MHA_BAD_ARGUMENT. */
MHA_API int64_t mha_program_step_count(const mha_program *program);
MHA_API mha_status mha_program_step_get(mha_context *ctx, const mha_program *program, int64_t n,
                                        mha_program_step *step);

/* Bytes of memory for all values of one sequence, where those that are not needed at the same time share it. */
MHA_API int64_t mha_program_memory(const mha_program *program);

#ifdef __cplusplus
}
#endif

#endif
