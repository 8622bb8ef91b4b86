/* A generation: prompts in, one token for each sequence in every step, until all have finished.
 *
 *     nn_generation *g = nn_generation_create(&setup, decoder, &prompts, error, sizeof error);
 *     while (!nn_generation_finished(g) && nn_generation_step(g, ctx)) ;
 *     nn_generation_get(g, b)
 *
 * With beams, each sequence has N rows of the decoder. Its prompt runs in the first of them, and the others become copies.
 * The tokens of such a sequence are known when its search has ended. Prompts are never padded, and the random numbers of a
 * sequence depend on the seed, its prompt, and how many equal prompts come before it: so what a sequence gets does not
 * depend on the others. A step allocates nothing. */
#ifndef NN_GENERATE_GENERATION_H
#define NN_GENERATE_GENERATION_H

#include "generate/beams.h"
#include "generate/sampling.h"
#include "generate/decoder.h"

typedef enum nn_finish {
    NN_FINISH_NONE,     /* it goes on */
    NN_FINISH_END,      /* an end token */
    NN_FINISH_STOPPED,  /* the watcher said so: a stop string */
    NN_FINISH_LENGTH,   /* its greatest length */
    NN_FINISH_CANCELLED /* the watcher ended all sequences */
} nn_finish;

typedef enum nn_verdict { NN_GO_ON, NN_STOP, NN_CANCEL } nn_verdict;

typedef struct nn_generation_setup {
    nn_rules rules;           /* max_length is set for each sequence */
    bool sample;              /* else the largest score */
    nn_choice_options choice; /* stream is set for each sequence */
    nn_beams_options beams;   /* beams 0: no search; `encoder` is set for each sequence */
    int64_t max_new;          /* tokens of a sequence, at least 1, as far as the decoder has room for all but one */
    int64_t max_length;       /* tokens with the prompt; 0: any number */

    /* Called for each new token, from the thread that steps; `finish` is why it is the last one, if it is. With beams, all
     * tokens of a sequence are new when its search ends. Or NULL. */
    nn_verdict (*watch)(void *user, int64_t sequence, int32_t token, nn_finish finish);
    void *user;
} nn_generation_setup;

typedef struct nn_prompts {
    int64_t count;          /* B */
    const int32_t *tokens;  /* of the decoder, one prompt behind another */
    const int64_t *starts;  /* (B+1): none is empty */
    const int32_t *encoder; /* what the encoder read, likewise; or NULL */
    const int64_t *encoder_starts;
} nn_prompts;

typedef struct nn_generation nn_generation;

/* The decoder has B rows, or B*N with beams, without tokens, and belongs to the generation from now on, also on error.
 * Prompts are copied; lists in the setup must stay. NULL on error, with one line in `error`. */
nn_generation *nn_generation_create(const nn_generation_setup *setup, nn_decoder *decoder, const nn_prompts *prompts,
                                    char *error, size_t error_size);
void nn_generation_free(nn_generation *g); /* NULL is legal */

bool nn_generation_finished(const nn_generation *g);

/* One token more for each sequence that has not finished. False on error, with the reason in the context: the model cannot
 * run, its logits are not finite, or no token may follow. The sequences have the tokens of the steps before then, and
 * further steps fail, too. */
bool nn_generation_step(nn_generation *g, mha_context *ctx);

/* Sequence b as it is: its tokens with the prompt of the decoder, and why it has finished. A running beam search shows its
 * best beam. */
typedef struct nn_generated {
    const int32_t *tokens;
    int64_t count, prompt;
    nn_finish finish;
    float score; /* of a beam search that has ended */
} nn_generated;
nn_generated nn_generation_get(const nn_generation *g, int64_t b);

#endif
