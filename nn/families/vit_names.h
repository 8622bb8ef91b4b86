/* The parts of a Vision Transformer under the names and shapes that timm gives them: what files, the page and the bench
 * read.
 *
 *     for (nn_parts w = nn_parts_of(&d); nn_vit_next(&w, &part);) ... parameters + part.first ...
 */
#ifndef NN_FAMILIES_VIT_NAMES_H
#define NN_FAMILIES_VIT_NAMES_H

#include "model/parts.h"

typedef struct nn_vit_part {
    char name[64];
    int64_t first, count; /* where it starts in a block of parameters; its numbers */
    int rank;
    int64_t shape[4];
    bool is_weight;    /* a matrix of a product */
    nn_part_kind kind; /* that of Q for Q, K and V as one */
    int64_t block;     /* -1: of none */
} nn_vit_part;

/* What a description has that files of Vision Transformers cannot say, in a few words; NULL if there is nothing. */
const char *nn_vit_problem(const nn_description *d);

/* The next tensor, in the order in which they lie; false at the end. */
bool nn_vit_next(nn_parts *walk, nn_vit_part *part);

#endif
