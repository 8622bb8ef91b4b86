/* What the page of `mha view` computes with: the library, compiled to WebAssembly. engine.js calls these functions; they
 * see what mha_model.h and mha_text.h declare and nothing else of the library, as the command does.
 *
 *     page *p = page_open("/model.safetensors", 0);
 *     if (!p || page_run(p, pixels, PAGE_MAPS)) puts(page_error());
 *     const float *logits = page_numbers(p, PAGE_LOGITS);
 *
 * Results stay in memory of the page until the next call that computes them. Calls that can fail return 0, or -1 with a
 * line in page_error. */
#ifndef ENGINE_H
#define ENGINE_H

#include <mha_text.h>

/* Exported by the module under its own name. (Tests also compile these files for the machine they run on.) */
#ifdef __wasm__
#define PAGE_API(name) __attribute__((export_name(#name)))
#else
#define PAGE_API(name)
#endif

typedef struct page page;

/* Kinds of results, as engine.js counts them. T is the tokens of the run, L the blocks, "heads" those of all blocks. */
typedef enum page_kind {
    PAGE_LOGITS,        /* (classes), or (T,classes) */
    PAGE_PROBABILITIES, /* the softmax of each row of logits; not of logits for every token of a text */
    PAGE_HIDDEN,        /* (L+1,T,M), as in mha_model_outputs */
    PAGE_MAPS,          /* (heads,T,T); of a pair, (H,Tq,Tk) for each attention */
    PAGE_STATISTICS,    /* (heads,4): entropy, effective, largest, distance, means over rows */
    PAGE_DIVERGENCES,   /* (H,H) for each attention */
    PAGE_EFFECTIVE,     /* (heads,T); of a pair, (H,Tq) for each attention */
    PAGE_ROLLOUT,       /* (L,T,T) */
    PAGE_CONTRIBUTIONS, /* (heads+L+2,classes), as mha_model_contributions */
    /* Of one block, as mha_model_inside and the maps have it: */
    PAGE_X,          /* (T,M) */
    PAGE_READ,       /* (T,M) */
    PAGE_Q,          /* (H,T,D) */
    PAGE_K,          /* (G,S,D); S is T, or of cross-attention the rows of the encoder */
    PAGE_V,          /* (G,S,D) */
    PAGE_SCORES,     /* (H,T,S); -infinity where a key is not visible */
    PAGE_WEIGHTS,    /* (H,T,S) */
    PAGE_HEADS,      /* (H,T,D), also of heads that are off */
    PAGE_ATTENDED,   /* (T,M) */
    PAGE_MIDDLE,     /* (T,M) */
    PAGE_MLP_READ,   /* (T,M) */
    PAGE_MLP_HIDDEN, /* (T,F); none of a mixture of experts */
    PAGE_MLP,        /* (T,M) */
    PAGE_Y,          /* (T,M) */
    PAGE_FITTED,     /* (rows,columns) of the model, from 0 to 255: page_fit */
    PAGE_NEXT,       /* (n,2): tokens and their probabilities: page_next */
    PAGE_KINDS
} page_kind;

/* ---- engine.c: models and their runs ------------------------------------------------------------------------------ */

/* The message of the last call that failed. */
const char *page_error(void);

/* Opens a model; `heads` as in mha_model_options. NULL on error. */
page *page_open(const char *path, int heads);
void page_close(page *p); /* NULL is legal */
int page_blocks(const page *p);

/* Switches off the heads n with off[n], counted through all blocks; for good. */
int page_switch_off(page *p, const unsigned char *off, int count);

/* A parameter, and how many numbers it has; NULL and 0 if there is none of that name. */
const float *page_parameter(const page *p, const char *name);
int page_parameter_numbers(const page *p, const char *name);

/* All parameters, in the order of a file: how many there are, their names, and their sizes, 0 past the last axis. */
int page_parameters(const page *p);
const char *page_parameter_name(const page *p, int n);
int page_parameter_size(const page *p, int n, int axis);

/* A pixel x from 0 to 1 goes in as (x - mean) / deviation. */
float page_mean(const page *p);
float page_deviation(const page *p);

/* Runs the model on an image of bytes (rows,columns): logits, probabilities, hidden states and, if wanted is 1 or more, maps;
 * if it is 2, also statistics, divergences and effective. */
int page_run(page *p, const unsigned char *pixels, int wanted);

/* What each part adds to the logits of the image. */
int page_contributions(page *p, const unsigned char *pixels);

/* What lies inside a block, on the image: the kinds from PAGE_X to PAGE_Y. */
int page_inside_image(page *p, int block, const unsigned char *pixels);

/* The numbers of a kind, where they lie, and how many; NULL and 0 if there are none. */
const float *page_numbers(const page *p, int kind);
int page_count(const page *p, int kind);

/* ---- rollout.c: attention rollout ---------------------------------------------------------------------------------- */

/* From the maps (heads,T,T) of a run: each block keeps half of its input and takes the other half from the mean of its
 * heads that are not off,
 *
 *     A_b = 0.5 mean of weights + 0.5 I, rows divided by their sum      R_b = A_b R_(b-1),  R_0 = I
 *
 * and a block without heads passes on its input. */
int page_rollout(page *p, const float *maps, int T, const unsigned char *off);

/* ---- fit.c: drawings and pictures ------------------------------------------------------------------------------------ */

/* Pixels (rows,columns,4), red, green, blue and alpha, as mha_model_fit makes them look like MNIST's: 0, or 1 if there is no
 * ink. */
int page_fit(page *p, const unsigned char *pixels, int rows, int columns);

/* Why the last picture may not be a digit; "" if nothing speaks against it. */
const char *page_doubt(void);

/* The calls of write.c, names.c and generate.c are in the module of pages for text alone, and those of rollout.c, fit.c and train.c in the other: each
 * page carries what it needs. */

/* ---- write.c: texts ------------------------------------------------------------------------------------------------ */

enum { PAGE_TOKENS_MOST = 1024 }; /* of a text */

/* Runs the model on tokens, as page_run does on an image. */
int page_run_tokens(page *p, const int32_t *ids, int count, int wanted);

/* Runs a model with an encoder, which reads the ids, and a decoder, which reads the target: logits and hidden states are the
 * decoder's. */
int page_run_pair(page *p, const int32_t *ids, int count, const int32_t *target, int target_count, int wanted);

/* What lies inside the block of an attention, or inside its cross-attention, as page_inside_image: of a model with an
 * encoder, with a target for its decoder; of others, without. */
int page_inside_tokens(page *p, int attention, const int32_t *ids, int count, const int32_t *target, int target_count);

/* How many attentions there are, and one of them, in the order of the maps: its heads, and whether it belongs to a decoder (1)
 * or is cross-attention (2). */
int page_attentions(const page *p);
int page_attention_heads(const page *p, int n);
int page_attention_kind(const page *p, int n);

/* Opens the tokenizer of a model, and `target`, that of the decoder of a model with two stacks, which may be the same file;
 * or NULL. */
int page_open_tokenizers(page *p, const char *path, const char *target);

/* The ids of a text of `length` bytes, special tokens included, as `mha view --text` makes them; those of a target begin
 * with the tokens that the decoder starts with. Returns how many there are, or -1. page_ids has them until the next call. */
int page_encode(page *p, const char *text, int length);
int page_encode_target(page *p, const char *text, int length);
const int32_t *page_ids(const page *p);

/* What a token stands for, and the text of tokens; of the target's tokenizer if `target` is not 0. NULL on error. Valid until
 * the next call of either; page_text_length has its bytes, which may include a NUL. */
const char *page_word(page *p, int id, int target);
const char *page_text(page *p, const int32_t *ids, int count, int target);
int page_text_length(const page *p);

/* ---- names.c: what heads attend to ------------------------------------------------------------------------------------ */

/* What every head attends to in a text, in words (mha_text_head), a line for each head, in the order of the maps: over the ids, of which
 * `before` and `after` at the ends are special tokens that belong to no text, and over `repeats` sequences of random tokens that are
 * repeated. Of a model with two stacks, the ids are those of the encoder, all of them. NULL on error, also for a text of a single token.
 * Valid until the next call; page_text_length has its bytes. */
const char *page_names(page *p, const int32_t *ids, int count, int before, int after, const int32_t *target,
                       int target_count, int repeats);

/* ---- generate.c: what comes next ------------------------------------------------------------------------------------- */

enum { PAGE_NEXT_MOST = 20 };

/* What may come behind a row of the last run of tokens, or in its place if it is a mask: the distribution that generation
 * draws from, best first, as PAGE_NEXT. Returns how many candidates there are, at most PAGE_NEXT_MOST, or -1.
 *
 * `settings` are lines "key=value": temperature (0: the most likely token alone), top_k (0: all), top_p, min_p,
 * repetition_penalty, and, for page_generate, seed and max_new_tokens. Without them, probabilities are the softmax of the
 * logits. */
int page_next(page *p, int row, const char *settings);

/* Begins a generation behind the ids; for a model with two stacks, of what follows the target (which may be empty) for the
 * ids of the encoder. A step returns the next id, -2 if there is none, or -1. page_generated has all ids of the decoder so
 * far, page_generated_count of them. A page has one generation at a time. */
int page_generate(page *p, const int32_t *ids, int count, const int32_t *target, int target_count,
                  const char *settings);
int page_generate_step(page *p);
const int32_t *page_generated(const page *p);
int page_generated_count(const page *p);
void page_generate_end(page *p);

/* ---- train.c: a training ------------------------------------------------------------------------------------------- */

typedef struct page_training page_training;

/* What is known of a training, as engine.js counts it. */
typedef enum page_training_number {
    PAGE_TRAINING_STATE,     /* mha_training_state of the last step */
    PAGE_TRAINING_STEP,      /* taken so far */
    PAGE_TRAINING_EPOCH,     /* of the last step, from 1 */
    PAGE_TRAINING_LOSS,      /* of the last batch */
    PAGE_TRAINING_CORRECT,   /* the share of the last batch that was predicted correctly */
    PAGE_TRAINING_TEST_LOSS, /* of the last evaluation */
    PAGE_TRAINING_TEST_CORRECT,
    PAGE_TRAINING_NUMBERS
} page_training_number;

/* Starts a training on the four files of MNIST's format in a folder. `settings` are lines "key=value" for
 * mha_recipe_set. NULL on error. */
page_training *page_train(const char *folder, const char *settings);
void page_train_close(page_training *t); /* NULL is legal */
int page_train_step(page_training *t);
int page_train_evaluate(page_training *t);
const double *page_train_numbers(const page_training *t);

/* The model as it is now, to be closed. NULL on error. */
page *page_trained(const page_training *t);

/* ---- Inside ---------------------------------------------------------------------------------------------------------- */

struct page {
    mha_model *model;
    mha_model_info about;
    struct page_room {
        float *numbers;
        int64_t count;
    } rooms[PAGE_KINDS];
    struct page_writing *writing; /* what belongs to texts, once it is needed; or NULL */
};

struct page_writing {
    void (*end)(struct page_writing *w);
    mha_tokenizer *tokenizers[2]; /* of the encoder, or the only stack, and of a decoder beside one */
    int32_t *ids;                 /* of the last text */
    char *text;                   /* of the last token or tokens, */
    size_t text_length;           /* and its bytes */
    int32_t *read[2];             /* what the last run read, of both stacks */
    int64_t read_count[2];
    mha_generation *generation;
};

extern mha_context *page_context; /* one for all */

/* Creates the context, once. */
int page_start(void);

/* A page with a model, which it owns. NULL, and a message, if there is no memory; the model is freed then. */
page *page_of(mha_model *model);

/* Makes p->writing. */
int page_start_writing(page *p);

/* Runs the model on what `in` has: T tokens of the encoder and of the decoder; of a model with one stack, the same twice. */
int page_run_inputs(page *p, const mha_model_inputs *in, const int64_t T[2], int wanted);

/* What lies inside the block of attention n, for what page_run_inputs reads (inside.c). */
int page_inside(page *p, int n, const mha_model_inputs *in, const int64_t T[2]);

/* Room for numbers of a kind; NULL, and a message, if there is no memory. */
float *page_take(page *p, page_kind kind, int64_t count);

/* 0 for MHA_OK; else leaves the message of the context and returns -1. */
int page_check(mha_status status);

/* Leaves a message and returns -1. */
int page_fail(const char *text);

/* Calls `set` for each line "key=value" of the settings, until it does not return 0. */
int page_settings(const char *lines, int (*set)(void *user, const char *key, const char *value), void *user);

#endif
