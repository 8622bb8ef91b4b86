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
 *         mha_status status = mha_model_run(ctx, model, &out, &in);
 *         if (status) puts(mha_context_error(ctx));
 *         for (int c = 0; !status && c < 10; c++) printf("%d: %g\n", c, (double)logits[c]);
 *         mha_model_free(model);
 *         mha_context_free(ctx);
 *         return status != MHA_OK;
 *     }
 *
 * What is here:
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
 *    12  Ablation      scores with heads switched off, and what each head adds to the logits
 *
 * Tokenizers, generation and the heads of text models are in mha_text.h, speech in mha_speech.h.
 *
 * What can be opened: folders as the `transformers` library saves them, of the families that `mha inspect` knows; Vision
 * Transformers under timm's tensor names, as a safetensors file or a folder with timm's config.json; those that `mha train
 * vit` saves; checkpoints of llama2.c. A file that is something else is refused with one line that says why.
 *
 * The rules of mha.h hold: calls return a status and leave one line in the context; nothing is written on error; zeroed
 * options are refused; results are the same bits for any number of threads, and those of a sequence depend on that
 * sequence alone. A model is used by one call at a time; it may be used with any context of the device that it was made
 * for. Numbers in files and recipes have a decimal point, whatever the locale of the program. Letters as in mha.h; T is
 * the tokens of a sequence, and L the blocks of a model. */
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
    bool gaps; /* of models of the transformers library, tensors may be missing or be no part of the model, which can be
                  inspected then, but not run */
} mha_model_options;

/* clang-format off */
#define MHA_MODEL_DEFAULTS {sizeof(mha_model_options), 0, MHA_FLOAT32, false}
/* clang-format on */

MHA_API void mha_model_defaults(mha_model_options *options, size_t size);

/* Opens a checkpoint. `path` is a file or a folder; or, where there is no such file, the name of a model on the Hugging Face
 * hub, such as "openai-community/gpt2", which is looked up in the cache of huggingface_hub (HF_HUB_CACHE, HF_HOME/hub,
 * XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub). A folder of that cache stands for the snapshot that its
 * refs/main names. Nothing is downloaded. `options` NULL means MHA_MODEL_DEFAULTS. On error *model is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (it cannot be read, is damaged or is no model that this library knows)
 * or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_open(mha_context *ctx, mha_model **model, const char *path,
                                  const mha_model_options *options);
MHA_API void mha_model_free(mha_model *model); /* NULL is legal */

/* The families that can be opened, by the model_type of their config.json, from 0; NULL beyond the last. */
MHA_API const char *mha_model_family(int64_t n);

/* What a model is. A number that does not apply is 0. */
typedef struct mha_model_info {
    size_t size;           /* of this struct, set by the caller; the rest is filled in */
    const char *family;    /* "vit" */
    int64_t parameters;    /* how many numbers; those that several parts share count once */
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
    int64_t file_bytes; /* upper bound for the size of a file of this model without notes; 0 if it cannot be saved */
    int64_t vocabulary; /* of tokens that go in; of the encoder, if there is one */
    int64_t encoder_blocks; /* of a model with two stacks, whose other numbers are the decoder's; */
    int64_t encoder_width;
    bool decoder_only; /* its one stack is a decoder */
    bool pooled;       /* one row of logits for each sequence; else for each token */
    bool head;         /* logits are those of a head; else they are the rows of the last block, `width` numbers each */
    int64_t
        positions; /* most tokens of a sequence that goes in, of the decoder where the encoder reads audio; 0: no limit,
                          as with a rotary embedding */
    int64_t context; /* most tokens that it was made for, as its file says, limit or not; 0: the file does not say */
    int64_t bins, frames; /* of features, where it reads audio */
    const char *text_of;  /* the model_type of a checkpoint for text and pictures whose text model this is; or NULL */
} mha_model_info;
MHA_API mha_status mha_model_about(mha_context *ctx, const mha_model *model, mha_model_info *info);

/* The file or folder that the model was opened from, where a name of the hub is the folder that was found; NULL if the model
 * did not come from a file. Valid as long as the model. */
MHA_API const char *mha_model_path(const mha_model *model);

/* The name of class n, from 0, as the model's config.json has it (id2label); NULL if it does not say. Valid as long as the
 * model. */
MHA_API const char *mha_model_label(const mha_model *model, int64_t n);

/* All of the description as one JSON object, for programs: what goes in, the blocks, what comes out. Valid as long as
 * the model. NULL if there was no memory for it when the model was made. */
MHA_API const char *mha_model_describe(const mha_model *model);

/* ---- 2 · Running ------------------------------------------------------------------------------------------------ */

/* What goes in. */
typedef struct mha_model_inputs {
    mha_tensor images; /* (B,channels,rows,columns), any float type: pixels from 0 to 1; the model applies its mean and
                          deviation. Bytes divided by 255.0f give the bits of mha_model_evaluate. */

    /* Models of text: ids are MHA_INT32 or MHA_INT64, from 0 to below the size of the vocabulary. */
    mha_tensor tokens;         /* (B,T): what the first stack reads */
    mha_tensor types;          /* (B,T): token types, where the model has them; or none: 0 */
    mha_tensor lengths;        /* MHA_INT64 (B): how many tokens each sequence has; the rest is padding. None: T */
    mha_tensor features;       /* any float type (B,bins,2T): of audio frames, in place of tokens */
    mha_tensor decoder_tokens; /* (B,Td): what the decoder of a model with two stacks reads. None for the heads of BART
                                  that classify or answer: their decoders read `tokens`, behind the start token */
} mha_model_inputs;

/* What lies inside one block, on request: leave a tensor all zero and it costs nothing. All are of any float type; the
 * letters are those of the block, F is the width of its hidden layer. The weights of attention are in `maps`.
 *
 *     read = norm(x)           scores = scale * q . k and so on       heads = softmax(scores) v
 *     attended = heads Wo      middle = x + attended
 *     mlp_read = norm(middle)  mlp = hidden W2                        y = middle + mlp
 *
 * Norms are where the model has them: if they follow a sum, `middle` and `y` are the norm of it; if they follow attention or
 * MLP, `attended` and `mlp` are the norm of what these give. An MLP parallel to attention reads x, or its norm. Where a
 * model adds to the norm and not to its input, as BLOOM may, `middle` is read + attended and `y` is mlp_read + mlp.
 *
 * S is the number of keys: T, or of a cross-attention the rows of the encoder. The inside of a cross-attention begins with the
 * rows that the attention before it has left; `middle` is what cross-attention leaves. */
typedef struct mha_model_inside {
    int64_t attention;   /* which block: that of this attention, counted as `maps` are */
    mha_tensor x;        /* (B,T,M): the rows that come in */
    mha_tensor read;     /* (B,T,M): what attention reads: their norm, or they themselves */
    mha_tensor q;        /* (B,H,T,D): as in mha_attention_extras */
    mha_tensor k;        /* (B,G,S,D) */
    mha_tensor v;        /* (B,G,S,E) */
    mha_tensor scores;   /* (B,H,T,S): at MHA_STAGE_MASKED, as the softmax reads them */
    mha_tensor heads;    /* (B,H,T,E): also of heads that are switched off, which Wo leaves out */
    mha_tensor attended; /* (B,T,M): what attention adds to the rows, any factors of the model included */
    mha_tensor middle;   /* (B,T,M): the rows behind attention, and behind cross-attention if there is one */
    mha_tensor mlp_read; /* (B,T,M): what the MLP reads */
    mha_tensor hidden;   /* (B,T,F): its hidden layer, after activation and gate; a mixture of experts has none */
    mha_tensor mlp;      /* (B,T,M): what the MLP adds */
    mha_tensor y;        /* (B,T,M): the rows that go out, before the final norm */
} mha_model_inside;

/* What comes out, on request: leave it all zero and it costs nothing. Attentions are counted from 0 as in section 4. */
typedef struct mha_model_outputs {
    mha_tensor logits; /* any float type (B,classes), or (B,T,classes) if the model has logits for every token */
    mha_tensor hidden; /* any float type (L+1,B,T,M): the rows before each block and, after the final norm, the last; of
                          the decoder, if there is one */
    mha_tensor encoder_hidden; /* the same of the encoder, if there is a decoder as well */
    const mha_tensor
        *maps; /* NULL, or one for each attention: any float type (B,H,Tq,Tk), the weights. Rows and columns
                               of padding are 0 */
    const mha_stats *stats;                 /* NULL, or one for each attention: statistics of its heads, as in mha.h */
    const mha_stats_options *stats_options; /* of all of these; NULL: MHA_STATS_DEFAULTS */
    const mha_model_inside *inside;         /* NULL, or what lies inside one block */
} mha_model_outputs;

/* Runs the model over B sequences. No output may overlap anything else, the model's parameters included. Logits that are
 * not finite are an error: sums of the model's numbers have overflowed, or an image has a pixel that is not finite. Maps,
 * statistics and what lies inside a block have been written then. Rows (B,T,M) and (B,T,F), and those of logits, past the
 * length of a sequence hold anything. Asking for more changes no bit of the rest.
 * The results of a sequence have the same bits alone and in any batch. Rotary embeddings that depend on the length of a
 * sequence (dynamic, LongRoPE) follow its own length, and sequences with unlike ones run one group after another: if one
 * overflows, those of the groups before it have been written.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE, MHA_NO_MEMORY or
 * MHA_NO_DEVICE. */
MHA_API mha_status mha_model_run(mha_context *ctx, mha_model *model, const mha_model_outputs *outputs,
                                 const mha_model_inputs *inputs);

/* A picture from a PNG or PGM file as the model reads it, prepared as the library of the checkpoint does: resized, cropped
 * at the centre, rescaled and normalised, as preprocessor_config.json in the model's folder says (the image processors of
 * ViT, DeiT and BiT), or pretrained_cfg in timm's config.json. For a model of grey images without such a file it is
 * taken as a digit and prepared by mha_model_fit with its defaults.
 *
 *   image (channels,rows,columns), for mha_model_run      seen (rows,columns,3): the pixels before they are rescaled, or NULL
 *
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also if no file says how, or in a way that is not supported), MHA_BAD_FILE (also if
 * there is no ink) or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_picture(mha_context *ctx, const mha_model *model, float *image, unsigned char *seen,
                                     const char *path);

typedef enum mha_when { MHA_WHEN_AUTO, MHA_WHEN_YES, MHA_WHEN_NO } mha_when;

typedef struct mha_fit_options {
    size_t size;     /* of this struct */
    mha_when fit;    /* AUTO: unless the picture has the model's size and looks like MNIST's; NO: never */
    mha_when invert; /* AUTO: if the ink is darker than the paper; YES: it is; NO: it is lighter */
} mha_fit_options;

/* clang-format off */
#define MHA_FIT_DEFAULTS {sizeof(mha_fit_options), MHA_WHEN_AUTO, MHA_WHEN_AUTO}
/* clang-format on */

MHA_API void mha_fit_defaults(mha_fit_options *options, size_t size);

/* What was found in a picture, and done with it. */
typedef struct mha_fit {
    size_t size;                      /* of this struct, set by the caller; the rest is filled in */
    bool blank;                       /* there is no ink */
    bool inverted;                    /* the ink was darker than the paper */
    bool fitted;                      /* false: the result has the bytes of the picture, or of the inverted picture */
    bool thickened;                   /* strokes were too thin */
    int64_t top, left, rows, columns; /* of the ink, in pixels of the picture */
    const char *doubt; /* why it may not be a digit, for people; "" if nothing speaks against it. Static */
} mha_fit;

/* A drawing, scan or photograph of one digit, as a model of grey images reads it: light ink on black, the ink's bounding
 * box scaled to 20/28 of the sides with its aspect ratio kept, and its centre of mass moved to the middle, as far as all
 * ink stays inside. The paper may be dark or light, grey, unevenly lit and noisy; specks are removed, and strokes
 * thinner than MNIST's are thickened.
 *
 *   out (model rows,model columns), bytes: divide by 255.0f for mha_model_run      fit: what was found, or NULL
 *   pixels (rows,columns,channels), bytes from 0, black, to 255: 1 channel is grey, 3 are red, green and blue, 4 with alpha
 *
 * A picture without ink gives a black image and fit->blank. `options` NULL means MHA_FIT_DEFAULTS.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for a model of other images), MHA_BAD_SHAPE (also for a picture of another size,
 * if it is not to be fitted), MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_fit(mha_context *ctx, const mha_model *model, unsigned char *out, mha_fit *fit,
                                 const unsigned char *pixels, int64_t rows, int64_t columns, int64_t channels,
                                 const mha_fit_options *options);

/* ---- 3 · Parameters --------------------------------------------------------------------------------------------- */

/* A parameter under the name that its family gives it, such as "blocks.0.attn.qkv.weight". */
typedef struct mha_model_parameter {
    const char *name; /* valid as long as the model */
    mha_tensor
        tensor; /* float32, dense, where it lies: it may be written. Of models of other libraries, as the file has
                           it: of any type, with strides, and to be read only; without data if it is missing */
    const char *source; /* the tensor of the file that it is, or is a part of; NULL if it has the parameter's name */
    int64_t same;       /* the number of an earlier parameter that is the same numbers; -1: none */
} mha_model_parameter;

/* How many there are, and number n: all zero if there is none. In the order in which they are saved. */
MHA_API int64_t mha_model_parameter_count(const mha_model *model);
MHA_API mha_model_parameter mha_model_parameter_get(const mha_model *model, int64_t n);

/* The one with that name; all zero if there is none. */
MHA_API mha_model_parameter mha_model_parameter_find(const mha_model *model, const char *name);

/* Names of tensors, from 0, valid as long as the model; NULL beyond the last. Those that the model needs and its files lack,
 * where options.gaps let it be opened; and those that its files have and the model does not use. */
MHA_API const char *mha_model_missing(const mha_model *model, int64_t n);
MHA_API const char *mha_model_unused(const mha_model *model, int64_t n);

/* Where parameter n belongs. */
typedef struct mha_model_place {
    const char *stack; /* "encoder" or "decoder"; "" for the output, which belongs to neither */
    int64_t block;     /* from 0; -1 for none */
    const char *part; /* "input", "norm", "attention", "cross-attention", "mlp", "final norm" or "output"; NULL if there
                          is no parameter n */
} mha_model_place;
MHA_API mha_model_place mha_model_parameter_place(const mha_model *model, int64_t n);

typedef struct mha_save_options {
    size_t size;              /* of this struct */
    const char *const *notes; /* (note_count,2): keys and values of the file's metadata, UTF-8; NULL for none */
    int64_t note_count;
} mha_save_options;

/* clang-format off */
#define MHA_SAVE_DEFAULTS {sizeof(mha_save_options), NULL, 0}
/* clang-format on */

MHA_API void mha_save_defaults(mha_save_options *options, size_t size);

/* Parameters are read in every call, as changed. Saves them with all that is needed to open them again; a file at
 * `path` is replaced atomically. What is opened again has the same bits. Notes are for people and other programs: keys
 * that describe the model are refused. `options` NULL means MHA_SAVE_DEFAULTS.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also if a parameter is not finite: the file could not be opened), MHA_BAD_FILE or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_model_save(mha_context *ctx, const mha_model *model, const char *path,
                                  const mha_save_options *options);

/* ---- 4 · Heads -------------------------------------------------------------------------------------------------- */

/* An attention of the model. Most have one in each block, and number n is that of block n. A model with two stacks has
 * those of the encoder's blocks first, then those of the decoder's, then the cross-attention of the decoder's. */
typedef struct mha_model_attention {
    int64_t block;    /* of its stack */
    int64_t heads;    /* H */
    int64_t kv_heads; /* G */
    int64_t width;    /* D */
    bool decoder, cross;
    int64_t model_width; /* M of its stack */
    int64_t mlp;         /* F, the width of the hidden layer of its block; 0: the MLP is a mixture of experts */
} mha_model_attention;

/* How many attentions there are, and number n: all zero if there is none. */
MHA_API int64_t mha_model_attention_count(const mha_model *model);
MHA_API mha_model_attention mha_model_attention_get(const mha_model *model, int64_t n);

/* Makes a smaller model of its own, with the heads for which keep[n] is true, counted through all attentions: at least
 * one of each. `count` is how many numbers `keep` has, all heads of the model. The rows and columns of the others are
 * removed, as mha_layer_prune does. Returns as mha_model_open. */
MHA_API mha_status mha_model_prune(mha_context *ctx, mha_model **smaller, const mha_model *model, const bool *keep,
                                   int64_t count);

/* Writes a model without heads as one safetensors file that mha_model_open reads; `keep` and `count` as in
 * mha_model_prune. Of a model of the transformers library, tensors keep their names and types, those of attention lose rows
 * and columns, and the config in the file's metadata lists the heads as `pruned_heads`; heads that share keys and values
 * are kept or removed together. The file is replaced atomically.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_NO_MEMORY or MHA_BAD_FILE: also for models whose heads cannot be removed (two
 * stacks, ALiBi, norms over all heads, shared layers) and for one that has lost heads already. */
MHA_API mha_status mha_model_save_pruned(mha_context *ctx, const mha_model *model, const char *path, const bool *keep,
                                         int64_t count);

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
 * MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE, MHA_NO_MEMORY or MHA_NO_DEVICE. */
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

/* What heads attend to in drawings such as digits: roles. A role gives every patch a weight, and a head has the role if
 * its attention follows these weights from image to image, or from query to query:
 *
 *     mha_roles *roles;
 *     mha_role_score score = {.size = sizeof score};
 *     mha_roles_make(ctx, &roles, model, data, MHA_DATA_TEST, NULL);
 *     int64_t best = mha_roles_best(roles, 0, MHA_ROLE_FROM_CLASS, false);
 *     if (best >= 0 && !mha_roles_get(ctx, roles, 0, MHA_ROLE_FROM_CLASS, best, &score))
 *         printf("the class token attends to %s: %.2f\n", mha_role_name(best), score.score);
 *     mha_roles_free(roles);
 *
 * Role n has a key for programs, a name, and a meaning in a few words; NULL if there is none. Roles by position come
 * first: their weights depend on the places of query and key alone. The weights of roles by content depend on the image
 * and the key.
 *
 *     local, global            exp(-d^2/2) and d, with d the distance of query and key in patches
 *     top_bottom, left_right   exp(-d^2/2), with d the distance of the key from the mirror image of the query
 *     ink, background          the mean of the pixels, and what is missing to 1
 *     horizontal, vertical,    of the patch's structure tensor (the sum of the products of the pixels' gradients), the part
 *     rising, falling          of strokes in this direction: - | / and \
 *     ends, corners, curves    pixels of the strokes' middle line where it ends, turns by at least 60 degrees within 3 pixels,
 *                              or by 30 within 5 without a corner (for images of 28 x 28; in proportion for others)
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
    int64_t shuffles; /* from 1 to 1000000; a p is at least 1 / (shuffles + 1) */
    double level;     /* of significance: the p up to which roles are named, from 0 to 1 */
    uint64_t seed;    /* of the shuffles */
} mha_roles_options;

/* clang-format off */
#define MHA_ROLES_DEFAULTS {sizeof(mha_roles_options), 400, 999, 0.005, 1}
/* clang-format on */

MHA_API void mha_roles_defaults(mha_roles_options *options, size_t size);

/* Measures all roles of all heads of a model over a part of the data. The results have the same bits for any number of
 * threads. The model may be changed or freed afterwards. `options` NULL means MHA_ROLES_DEFAULTS. On error *roles is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also if weights or logits are not finite), MHA_BAD_SHAPE as mha_data_check,
 * MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_roles_make(mha_context *ctx, mha_roles **roles, mha_model *model, const mha_data *data,
                                  mha_data_part part, const mha_roles_options *options);
MHA_API void mha_roles_free(mha_roles *roles); /* NULL is legal */

typedef struct mha_roles_info {
    size_t size;              /* of this struct, set by the caller; the rest is filled in */
    int64_t images, shuffles; /* as they were used */
    int64_t blocks, heads;    /* heads of all blocks together */
    double level;
    bool class_token; /* there are scores for it */
} mha_roles_info;
MHA_API mha_status mha_roles_about(mha_context *ctx, const mha_roles *roles, mha_roles_info *info);

/* Whose attention it is: the mean over all patches as queries, or the class token. Roles by position have the former. */
typedef enum mha_role_from { MHA_ROLE_FROM_PATCHES = 0, MHA_ROLE_FROM_CLASS = 1 } mha_role_from;

/* How well a head fits a role.
 *
 * By content, the attention that each patch receives is compared with the role's weights of the same image, both without
 * their means over images, place by place: what the head does in every image does not count. By position, the mean map
 * is compared with the weights, both without the means of rows and columns: what the head does for every query does not
 * count. The null hypothesis by content is that the images do not matter: the maps are paired with the weights of other
 * images, at random. By position it is that places do not matter: the keys of the mean map are moved to random places.
 * That destroys the smoothness of a map, too, so a small p by position says that the places matter, and the score how
 * closely they follow the role.
 *
 * A role is named if p <= level, score >= 0.15 and variation >= 0.05. Over all heads and roles together, the probability
 * that any is named where attention and images have nothing to do with each other is at most `level`. */
typedef struct mha_role_score {
    size_t size;         /* of this struct, set by the caller; the rest is filled in */
    int64_t block, head; /* from 0 */
    double score;        /* correlation of attention and weights, from -1 to 1 */
    double lift;         /* weight on the role's patches, relative to what the means alone would give */
    double variation;    /* root mean square of what is left of the attention, relative to that of its means */
    double z;            /* the covariance, in standard deviations of its distribution over all shuffles */
    double p;            /* how often the largest z of any head and role is as large as this one, over the shuffles, */
    double p_alone;      /* and how often that of this head and role is */
    bool named;
} mha_role_score;

/* Of head n, counted through all blocks. MHA_BAD_ARGUMENT if there is no such head or role, if the role is one by position
 * and `from` not MHA_ROLE_FROM_PATCHES, or if the model has no class token and `from` is MHA_ROLE_FROM_CLASS. */
MHA_API mha_status mha_roles_get(mha_context *ctx, const mha_roles *roles, int64_t n, mha_role_from from, int64_t role,
                                 mha_role_score *score);

/* The named role with the highest score, of those by position or of those by content; -1 if none is named. */
MHA_API int64_t mha_roles_best(const mha_roles *roles, int64_t n, mha_role_from from, bool position);

/* ---- 7 · Layer files -------------------------------------------------------------------------------------------- */

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
 * Other modules are recognized by the usual names of their linear layers: W_q, W_k, W_v and W_o; query_linear, ...;
 * W_query, ...; to_q, ..., to_out.0, and many more. So is a list with one module per head, heads.0.W_query.weight, ...,
 * with or without an output projection. Their family is what was found: "W_q, W_k, W_v, W_o". A causal mask among their
 * buffers (mask, tril) makes the layer causal; any other tensor is an error. For other names there are q, k, v and out
 * below. If all tensors of a file have one prefix, and it is that of its one layer, it need not be given.
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

    /* Which linear layers are the projections, in a file with unusual names: NAME for NAME.weight (out,in) and NAME.bias,
     * if there is one, after the prefix. Or the name of a weight alone, with ".T" behind it if it is (in,out). "{h}" in a
     * name stands for the number of a head, from 0: one module per head. NULL: by the usual names. Without a prefix,
     * all tensors of the file must be named; with one, others are ignored. */
    const char *q, *k, *v, *out;
} mha_layer_file_options;

/* clang-format off */
#define MHA_LAYER_FILE_DEFAULTS {sizeof(mha_layer_file_options), NULL, NULL, 0, 0, 0.0, NULL, NULL, NULL, NULL}
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
    MHA_LAYER_FROM_TENSORS =
        3, /* heads: a list of heads, or shapes, in a Vision Transformer whose blocks have different
                                    numbers of heads; causal: a mask */
    MHA_LAYER_FROM_OPTIONS = 4
} mha_layer_source;

/* What was found. mha_layer_shape has all options of the layer. */
typedef struct mha_layer_file_info {
    size_t size;            /* of this struct, set by the caller; the rest is filled in */
    const char *family;     /* "pytorch", "gpt2", ..., or the names that were found; see above */
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
typedef struct mha_layer_file_parameter {
    const char *name;  /* valid as long as the file */
    mha_tensor tensor; /* float32, not always dense: a view into the layer or the block */
} mha_layer_file_parameter;

/* How many there are, and number n: all zero if there is none. `block` as in mha_layer_view: NULL for the parameters
 * themselves, or for example gradients. */
MHA_API int64_t mha_layer_file_parameter_count(const mha_layer_file *file);
MHA_API mha_layer_file_parameter mha_layer_file_parameter_get(const mha_layer_file *file, int64_t n, float *block);

/* Saves any layer under PyTorch's names ("pytorch", or "pytorch-split" if nn.MultiheadAttention could not be this layer),
 * with its options as metadata; a file at `path` is replaced atomically. What is opened again has the same bits.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (a layer that such a file cannot express: over weights of the caller that are not one
 * float32 block, with norms other than RMS with one gain for all heads, with an output width of its own, with rotary
 * frequencies or tables) or MHA_BAD_FILE. */
MHA_API mha_status mha_layer_save(mha_context *ctx, const mha_layer *layer, const char *path);

/* ---- 8 · Recipes ------------------------------------------------------------------------------------------------ */

/* All settings of a model and its training, as keys with values in text form: "width" is "64", "lr" is "0.0025". Two
 * recipes with the same values give the same model on the same data. */
typedef struct mha_recipe mha_recipe;

/* Presets are recipes with a name. The name of preset n and a line of description; NULL if there is none. Number 0 is
 * the default. */
MHA_API const char *mha_preset_name(int64_t n);
MHA_API const char *mha_preset_about(int64_t n);

/* Makes a recipe with the values of a preset; NULL means the default. On error *recipe is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (such as an unknown preset) or MHA_NO_MEMORY. */
MHA_API mha_status mha_recipe_create(mha_context *ctx, mha_recipe **recipe, const char *preset);
MHA_API mha_status mha_recipe_copy(mha_context *ctx, mha_recipe **copy, const mha_recipe *recipe);
MHA_API void mha_recipe_free(mha_recipe *recipe); /* NULL is legal */

/* The preset that it was made from. */
MHA_API const char *mha_recipe_preset(const mha_recipe *recipe);

/* Key n, from 0; NULL after the last. */
MHA_API const char *mha_recipe_key(const mha_recipe *recipe, int64_t n);

/* What a key means, in a few words, and whether its values are words rather than numbers. NULL and false if there is
 * no such key. */
MHA_API const char *mha_recipe_meaning(const mha_recipe *recipe, const char *key);
MHA_API bool mha_recipe_is_word(const mha_recipe *recipe, const char *key);

/* The value of a key, valid until it is set or the recipe is freed. "" if it has not been set and depends on the data;
 * NULL if there is no such key. */
MHA_API const char *mha_recipe_get(const mha_recipe *recipe, const char *key);

/* Sets a value. The text of an error begins with the key: "epochs must be a whole number from 1 to 100000, not 'ten'".
 * Returns MHA_OK or MHA_BAD_ARGUMENT. */
MHA_API mha_status mha_recipe_set(mha_context *ctx, mha_recipe *recipe, const char *key, const char *value);

/* ---- 9 · Training ----------------------------------------------------------------------------------------------- */

/* The training of one model. Examples are used in random order in each epoch, with augmentation; a step is one AdamW
 * step on the mean cross-entropy of a batch.
 *
 *     mha_training_report report = {.size = sizeof report};
 *     mha_recipe_create(ctx, &recipe, "demo");
 *     mha_recipe_set(ctx, recipe, "epochs", "2");
 *     mha_training_create(ctx, &training, recipe, data);
 *     do status = mha_training_step(ctx, training, &report);
 *     while (!status && report.state == MHA_TRAINING_STEPPED);
 *     mha_training_evaluate(ctx, training, MHA_TRAINING_TEST, &score);
 *     mha_training_model(ctx, &model, training);
 *
 * The result has the same bits for any number of threads. */
typedef struct mha_training mha_training;

/* Initializes a model for these data from the recipe, which is copied, and its seed. The context and the data must
 * outlive the training, and all calls that take the training must use this context. On error *training is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (such as more held-out examples than there are), MHA_NO_DEVICE (not the CPU) or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_training_create(mha_context *ctx, mha_training **training, const mha_recipe *recipe,
                                       const mha_data *data);
MHA_API void mha_training_free(mha_training *training); /* NULL is legal */

/* The recipe with the values that depend on the data filled in. Valid as long as the training. */
MHA_API const mha_recipe *mha_training_recipe(const mha_training *training);

typedef struct mha_training_info {
    size_t size;              /* of this struct, set by the caller; the rest is filled in */
    int64_t parameters;       /* how many numbers */
    int64_t epochs, batch;    /* of the whole run; examples per step */
    int64_t steps_per_epoch;  /* full batches only */
    int64_t step;             /* taken so far */
    int64_t epochs_begun;     /* epochs with a history */
    int64_t train;            /* examples to train on */
    int64_t held_out, test;   /* examples to evaluate on */
    bool averaged;            /* evaluated and saved weights are a moving average */
    const char *data;         /* identifies the data: counts, sizes and a hash; valid as long as the training */
    int64_t checkpoint_bytes; /* upper bounds for the sizes of a checkpoint, in any epoch, */
    int64_t model_bytes;      /* and of the finished model */
} mha_training_info;
MHA_API mha_status mha_training_about(mha_context *ctx, const mha_training *training, mha_training_info *info);

typedef enum mha_training_state {
    MHA_TRAINING_STEPPED,
    MHA_TRAINING_DONE,    /* all steps had been taken; nothing was done */
    MHA_TRAINING_DIVERGED /* the loss or the gradient is not finite; parameters are unchanged, and so is the history */
} mha_training_state;

typedef struct mha_training_report {
    size_t size; /* of this struct, set by the caller; the rest is filled in */
    mha_training_state state;
    int64_t epoch, step;       /* of the batch, counted from 0; these and all below are 0 if nothing was done */
    double loss, norm;         /* of the batch, and of its gradient before clipping */
    double rate;               /* learning rate */
    int64_t examples, correct; /* of the batch, and those that were predicted correctly */
} mha_training_report;

/* Takes the next step, if there is one. Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_training_step(mha_context *ctx, mha_training *training, mha_training_report *report);

typedef enum mha_training_part {
    MHA_TRAINING_HELD_OUT,
    MHA_TRAINING_TEST,
    MHA_TRAINING_SEEN /* the first examples that are trained on: as many as are held out or, if none are, as there are
                         test examples, and no more than there are. Compared with the held-out loss, the loss on these
                         shows overfitting */
} mha_training_part;

/* Evaluates the averaged weights, or the weights themselves without averaging, without augmentation and smoothing. A
 * held-out score becomes part of the history of the last epoch that has begun. Without held-out examples that score is
 * all zero. A loss that is not finite is not an error, and not part of the history. Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_training_evaluate(mha_context *ctx, mha_training *training, mha_training_part part,
                                         mha_score *score);

/* The history of an epoch. */
typedef struct mha_epoch_info {
    size_t size;                   /* of this struct, set by the caller; the rest is filled in */
    int64_t examples, correct;     /* trained on so far, and predicted correctly, as augmented */
    double loss;                   /* mean over these */
    double rate;                   /* learning rate of the last step */
    mha_score held_out;            /* of the last evaluation; count is 0 if there was none */
    double seconds, other_seconds; /* spent on steps; on evaluation and checkpoints */
} mha_epoch_info;

/* Of epoch n, from 0. Returns MHA_OK or MHA_BAD_ARGUMENT (it has not begun). */
MHA_API mha_status mha_training_epoch(mha_context *ctx, const mha_training *training, int64_t n, mha_epoch_info *info);

/* A model of its own with the weights that mha_training_evaluate uses, as if opened from the finished file with
 * MHA_MODEL_DEFAULTS. On error *model is NULL. Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_training_model(mha_context *ctx, mha_model **model, const mha_training *training);

/* ---- 10 · Checkpoints ------------------------------------------------------------------------------------------- */

/* The output file of a training: a checkpoint while it goes on, in the end a model.
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
 * A checkpoint is a model file with the averaged weights that also holds the state of the training: mha_model_open
 * opens it. A resumed run gives the same bits as an uninterrupted one. */
typedef struct mha_checkpoint mha_checkpoint;

/* Locks the file against other processes, and other claims of this one, until it is freed; in the meantime there is a
 * file .mha-lock-NAME in its folder. The file itself is neither read nor written. On error *file is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (such as: another process has the lock, or the file cannot be written)
 * or MHA_NO_MEMORY. */
MHA_API mha_status mha_checkpoint_claim(mha_context *ctx, mha_checkpoint **file, const char *path);
MHA_API void mha_checkpoint_free(mha_checkpoint *file); /* NULL is legal */

/* Notes are saved in checkpoints, not in the finished model. Keys are up to 31 lower-case letters and underscores, there
 * are at most 8, and the names "version", "step", "recipe", "preset" and "set" are reserved. `value` NULL removes the
 * note. A value that is not UTF-8 or has control characters is not saved. The value of a note is valid until it is set
 * again or the file is read or freed; NULL if there is none. */
MHA_API mha_status mha_checkpoint_set_note(mha_context *ctx, mha_checkpoint *file, const char *key, const char *value);
MHA_API const char *mha_checkpoint_note(const mha_checkpoint *file, const char *key);

/* Write a checkpoint, and the finished model with notes on its origin (recipe, preset, seed, epochs, trained_on and
 * test_accuracy; epochs are those that were completed). The file is replaced atomically. To finish, the test part must
 * have been evaluated since the last step. Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE or MHA_NO_MEMORY. */
MHA_API mha_status mha_checkpoint_save(mha_context *ctx, mha_checkpoint *file, mha_training *training);
MHA_API mha_status mha_checkpoint_finish(mha_context *ctx, mha_checkpoint *file, mha_training *training);

/* Whether saving has failed because another process has replaced the file. That happens only on file systems without
 * locks. */
MHA_API bool mha_checkpoint_is_lost(const mha_checkpoint *file);

/* Reads and validates the checkpoint, with its notes. A checkpoint may come from somebody else: paths in its notes are
 * text, and no file is opened or written because of them.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (it cannot be read, is a finished model, is no checkpoint or is
 * damaged) or MHA_NO_MEMORY. */
MHA_API mha_status mha_checkpoint_read(mha_context *ctx, mha_checkpoint *file);

/* The recipe of the checkpoint that was read; NULL if none was. Valid until the file is read again or freed. */
MHA_API const mha_recipe *mha_checkpoint_recipe(const mha_checkpoint *file);

/* Makes a training that continues the checkpoint that was read. Returns as mha_training_create, and MHA_BAD_FILE if the
 * checkpoint is inconsistent or belongs to other data. */
MHA_API mha_status mha_training_resume(mha_context *ctx, mha_training **training, const mha_checkpoint *file,
                                       const mha_data *data);

/* ---- 11 · Pruning ----------------------------------------------------------------------------------------------- */

/* A round of pruning, valid during the call of `watch`. Scores are of the held-out examples. New members may be added at
 * the end. */
typedef struct mha_prune_round {
    int64_t number;      /* from 1; 0 for the report before the first round */
    int64_t heads;       /* remaining, in all attentions */
    const int64_t *gone; /* (gone_count) removed in this round, by their numbers in the original model; none in the
                            report of the final fine-tuning */
    int64_t gone_count;
    mha_score cut, tuned; /* before and after fine-tuning */
    bool undone;          /* accuracy dropped too far: the round was undone, and it is the last */
} mha_prune_round;

typedef struct mha_prune_options {
    size_t size;                   /* of this struct */
    int64_t keep;                  /* number of heads to keep in all attentions together; 0: one of each */
    double max_drop;               /* allowed drop of held-out accuracy, 0.003 for 0.3 points */
    int64_t rounds;                /* 0: one head per round */
    int64_t sample;                /* training examples to measure importance with */
    int64_t held_out;              /* last examples of the training part, used only to evaluate; 0: a twelfth */
    int64_t tune;                  /* training steps after each round */
    int64_t finish;                /* training steps after the last round */
    int64_t batch;                 /* examples per step; no more than there are */
    double tune_rate, finish_rate; /* initial learning rates; they decay to 0 */
    uint64_t seed;                 /* of the order of examples */
    bool (*watch)(void *arg, const mha_prune_round *round); /* called before the first round and after each; false stops
                                                               pruning with the model so far; NULL for none */
    void (*step)(void *arg, int64_t step, int64_t steps);   /* called after each step of fine-tuning; NULL for none */
    void *arg;                                              /* of both */
} mha_prune_options;

/* clang-format off */
#define MHA_PRUNE_DEFAULTS \
    {sizeof(mha_prune_options), 0, 1.0, 0, 1000, 0, 50, 0, 64, 1e-4, 1e-3, 1, NULL, NULL, NULL}
/* clang-format on */

MHA_API void mha_prune_defaults(mha_prune_options *options, size_t size);

/* Makes a smaller model in several rounds. Each measures the importance of every remaining head on training examples,
 * removes the least important ones, as mha_model_prune, and fine-tunes the rest. Heads are counted through all
 * attentions. The result has the same bits for any number of threads. `options` NULL means MHA_PRUNE_DEFAULTS. On error
 * *smaller is NULL. `watch` and `step` are called on the thread of the caller; they must not use this context, and must
 * not free the model or the data.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE (the model does not read these data), MHA_NO_DEVICE or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_prune_and_tune(mha_context *ctx, mha_model **smaller, const mha_model *model,
                                            const mha_data *data, const mha_prune_options *options);

/* ---- 12 · Ablation ---------------------------------------------------------------------------------------------- */

/* Switches heads off: the columns of Wo of every head n with off[n], counted through all attentions, are set to zero in
 * the parameters, so that the output of the head counts as zero from now on, also in a file that is saved. Where the
 * parameters lie in a file, the model gets copies of the weights concerned; generations that exist keep the heads, and
 * mha_model_save_pruned writes those of the file. All heads of a block may be off. The model has its old size;
 * mha_model_prune makes a smaller one. `count` is how many numbers `off` has, all heads of the model. Only models with one
 * stack of blocks. Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_model_switch_off(mha_context *ctx, mha_model *model, const bool *off, int64_t count);

typedef struct mha_ablate_options {
    size_t size;    /* of this struct */
    int64_t images; /* evenly spaced over the part; 0, or more than there are, is all of them */
} mha_ablate_options;

/* clang-format off */
#define MHA_ABLATE_DEFAULTS {sizeof(mha_ablate_options), 0}
/* clang-format on */

MHA_API void mha_ablate_defaults(mha_ablate_options *options, size_t size);

/* Scores of a model in several cases, in each of which other heads are switched off. The model is not changed.
 *
 *   off (cases,heads): heads counted through all attentions        scores (cases)
 *   correct (cases,classes): correct predictions of each label, or NULL
 *   labels (classes): examples of each label, or NULL
 *
 * The scores are those of mha_model_evaluate after mha_model_switch_off, up to rounding. All cases together take one pass over the whole
 * model, and for each case the part of a pass from the first block on in which a head is off. Equal cases are computed
 * once. The result has the same bits for any number of threads. `options` NULL means MHA_ABLATE_DEFAULTS.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for logits that are not finite), MHA_BAD_SHAPE as mha_data_check, MHA_NO_MEMORY
 * or MHA_NO_DEVICE. */
MHA_API mha_status mha_model_ablate(mha_context *ctx, mha_model *model, mha_score *scores, int64_t *correct,
                                    int64_t *labels, const bool *off, int64_t cases, const mha_data *data,
                                    mha_data_part part, const mha_ablate_options *options);

/* What each part of a model adds to the logits of B images on the direct path: from its place in the residual stream
 * through the final norm and the classification head. The final norm divides a row by its deviation; with that number as
 * it is for the image, the norm is linear. What a head changes in later blocks counts as their contribution.
 *
 *   out (B,heads+L+2,classes), any float type. The rows of an image:
 *       0                 the embedding: patches, class token and positions
 *       1 .. heads        the heads, counted through all attentions: the columns of Wo of a head times its output
 *       heads + 1 ..      the MLPs of the L blocks
 *       heads + L + 1     the biases of Wo, of the final norm and of the classification head
 *
 * The sum of these rows is the image's row of logits, up to rounding. `out` must not overlap anything else.
 * Returns as mha_model_run; MHA_BAD_ARGUMENT also if the norms of the model are not "before". */
MHA_API mha_status mha_model_contributions(mha_context *ctx, mha_model *model, mha_tensor out,
                                           const mha_model_inputs *inputs);

#ifdef __cplusplus
}
#endif

#endif
