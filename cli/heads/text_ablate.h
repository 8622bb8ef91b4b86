/* mha heads MODEL --text FILE --ablate: the loss of a language model without each of its heads. */
#ifndef HEADS_TEXT_ABLATE_H
#define HEADS_TEXT_ABLATE_H

#include "cli/heads/text.h"

typedef struct text_ablation {
    int64_t heads, windows;
    mha_score *scores; /* (1 + heads): with all heads, then without each of them */
    double seconds;
} text_ablation;

/* Prints an error and returns false on failure. Must be freed in either case. */
bool text_ablation_make(text_ablation *a, const texts *t, const mha_text_options *o, const text_survey *s,
                        const char *file);
void text_ablation_free(text_ablation *a); /* a zeroed one is legal */

/* Returns false, without printing anything, if out of memory. */
bool text_ablation_table(const term *t, const text_ablation *a, const text_survey *s);
void text_ablation_json(nn_buffer *out, const text_ablation *a, const text_survey *s);

#endif
