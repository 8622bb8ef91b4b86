/* Runs a model over sequences of tokens and hands out the attention weights of each:
 *
 *     nn_text_pass p;
 *     bool ok = nn_text_pass_open(&p, ctx, net, longest, error, sizeof error) &&
 *               nn_text_pass_run(&p, sequences, count, visit, &sums, error, sizeof error);
 *     nn_text_pass_close(&p);
 *
 * Neighbouring sequences of the same length run together, as many as fit NN_TEXT_MAPS bytes of weights, at least one.
 * `visit` is called on the calling thread, in the order of the sequences, so sums have the same bits for any number of
 * threads. */
#ifndef NN_INSPECT_TEXT_PASS_H
#define NN_INSPECT_TEXT_PASS_H

#include "program/model.h"

enum { NN_TEXT_BATCH = 8, NN_TEXT_MAPS = 1 << 26 };

/* Tokens of the encoder and of the decoder; a stack that the model lacks has none. */
typedef struct nn_text_sequence {
    const int32_t *tokens[2];
    int64_t T[2];
    const float *features; /* (bins,2*T[0]): of an encoder of audio, in place of tokens; else NULL */
} nn_text_sequence;

/* Whether the weights of an attention are computed: those of an encoder of audio, with its many frames, are not. */
bool nn_text_has_maps(const nn_description *d, const nn_attention_place *a);

/* As nn_maps_lay, for the attentions that have weights; the others have none. */
int64_t nn_text_maps_lay(mha_tensor *maps, float *numbers, const nn_description *d, int64_t B, const int64_t T[2]);

/* Sequence n, with the weights (H,Tq,Tk) of each attention, in the order of nn_description_attention; or NULL. */
typedef void nn_text_visit(void *arg, int64_t n, const float *const *maps);

typedef struct nn_text_pass {
    mha_context *ctx;
    nn_model *net;
    int64_t batch; /* the most sequences that run together */
    int32_t *tokens[2];
    float *features; /* (batch,bins,2*T) of an encoder of audio */
    float *numbers;
    mha_tensor *maps;   /* (attentions) */
    const float **each; /* (attentions): of one sequence */
} nn_text_pass;

/* How many sequences of these lengths run together: what the model must have been made for. */
int64_t nn_text_pass_batch(const nn_description *d, const int64_t T[2]);

/* For sequences of at most `longest` tokens. Returns false on error, with one line in `error`; must be closed in either
 * case. */
bool nn_text_pass_open(nn_text_pass *p, mha_context *ctx, nn_model *net, const int64_t longest[2], char *error,
                       size_t error_size);
void nn_text_pass_close(nn_text_pass *p);

/* Returns false on error, with one line in `error`: also if a weight is not finite. */
bool nn_text_pass_run(nn_text_pass *p, const nn_text_sequence *sequences, int64_t count, nn_text_visit *visit,
                      void *arg, char *error, size_t error_size);

/* How many tokens a sequence of this stack may have. */
int64_t nn_text_positions(const nn_input_config *in);

#endif
