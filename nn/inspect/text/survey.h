/* What every head of a model of text attends to, over windows of a text:
 *
 *     nn_text_survey s;
 *     if (!nn_text_survey_make(&s, ctx, net, &plan, error, sizeof error)) puts(error);
 *     for (int64_t n = 0; n < s.count; n++) puts(s.heads[n].words);
 *     nn_text_survey_free(&s);
 *
 * What the numbers and the words mean is said in mha_text.h, at mha_text_head. All is computed from the weights
 * (Tq,Tk) of each head, one sequence at a time (pass.h). */
#ifndef NN_INSPECT_TEXT_SURVEY_H
#define NN_INSPECT_TEXT_SURVEY_H

#include "inspect/text/pass.h"

enum {
    NN_TEXT_WORDS = 80,
    NN_TEXT_REACH = 8,  /* the largest offset of a query's key that has a name */
    NN_TEXT_SPLITS = 8, /* windows from which on position and content are told apart */
    NN_TEXT_OFFSETS = 2 * NN_TEXT_REACH + 1
};

/* A number that does not apply to a head is NAN. */
typedef struct nn_text_head {
    nn_attention_place place; /* its attention */
    int64_t attention, head;  /* from 0 */
    bool audio;               /* the keys of cross-attention are frames */
    double entropy, uniform;  /* of a row, in nats; and that of equal weights on the visible keys */
    double effective, largest;
    double distance, uniform_distance;        /* of a query and its keys, in tokens; and with equal weights */
    double self, previous, next, first, last; /* weight on these keys, of queries that have them */
    double duplicate, induction, chance;      /* on repeated random tokens; and with equal weights */
    double position, content;                 /* parts of uniform - entropy */
    double monotone;                          /* of cross-attention */
    int64_t offset;                           /* from -NN_TEXT_REACH: that with the largest weight, not 0, */
    double offset_weight;                     /* and that weight */
    char words[NN_TEXT_WORDS];
} nn_text_head;

typedef struct nn_text_survey {
    int64_t count;       /* heads of all attentions that have weights */
    bool audio;          /* the encoder, whose heads have none, reads audio */
    nn_text_head *heads; /* (count), attention after attention */
    int64_t sequences, repeats;
    int64_t T[2];         /* tokens of each sequence; with unlike lengths, those of the first */
    bool same;            /* all have these lengths, and maps are means; else those of the first sequence */
    float *maps;          /* attention after attention (H,Tq,Tk) */
    int64_t *map_from;    /* (count): where the map of a head begins */
    int64_t R[2];         /* tokens of a sequence of repeated tokens; 0 if there are none */
    float *repeat_maps;   /* the mean maps over these, likewise, */
    int64_t *repeat_from; /* and where they begin; those of cross-attention are left empty */
} nn_text_survey;

typedef struct nn_text_plan {
    const nn_text_sequence *sequences;
    int64_t count;

    /* Random tokens that are repeated once: key + 1 and key of position t >= begin + length are the induction and
     * the duplicate of it, with key = t - length. */
    const nn_text_sequence *repeats;
    int64_t repeat_count;
    int64_t begin[2], length; /* of the stacks */
} nn_text_plan;

/* `net` must have room for the longest sequences (nn_text_pass_batch of them). Returns false on error, with one line in
 * `error`; nothing needs to be freed then. */
bool nn_text_survey_make(nn_text_survey *s, mha_context *ctx, nn_model *net, const nn_text_plan *plan, char *error,
                         size_t error_size);
void nn_text_survey_free(nn_text_survey *s); /* a zeroed one is legal */

/* The words that follow from the numbers. */
void nn_text_describe(nn_text_head *h);

#endif
