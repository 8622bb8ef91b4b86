/* Head statistics as JSON: the object that `mha heads --json` prints and the page of `mha view` contains.
 *
 *     {"images": 10000, "close_images": 400, "importance_images": 400,
 *      "heads": [{"block": 1, "head": 1, "entropy", "effective", "largest", "distance", "self", "previous", "next",
 *                 "first", "place", "position", "content", "importance", "words": "itself", "twin": 2 or null,
 *                 "divergence", "cosine"}, ...],
 *      "pairs": [a matrix of divergences for each block]}
 *
 * Blocks, heads and twins count from 0. Without a twin, divergence and cosine are null. */
#ifndef HEADS_JSON_H
#define HEADS_JSON_H

#include "io/buffer.h"
#include "cli/common/survey.h"

/* Appends the object, without a newline. */
void heads_json(nn_buffer *out, const survey *s);

#endif
