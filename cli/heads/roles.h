/* The roles of the heads of a model, as tables and as JSON:
 *
 *     {"images": 400, "shuffles": 999, "level": 0.005,
 *      "heads": [{"block": 1, "head": 1, "words": "patches: ink (0.72)", "by_position": a role or null, "patches": "ink",
 *                 "class_token": likewise,
 *                 "scores": [{"role": "ink", "queries": "patches" or "class_token", "score", "lift", "variation", "z",
 *                             "p", "p_alone", "named": true}, ...]}, ...]}
 *
 * Blocks and heads count from 0. */
#ifndef HEADS_ROLES_H
#define HEADS_ROLES_H

#include "cli/draw/term.h"
#include "io/buffer.h"
#include <mha_model.h>

typedef struct roles {
    mha_roles *of;
    mha_roles_info info;
    int64_t count;          /* of roles */
    int froms;              /* 1 without a class token, or 2 */
    mha_role_score *scores; /* (info.heads,froms,count); those that do not exist have a p of 1 */
} roles;

/* Over `sample` test images, evenly spaced, but at most 400; 0: 400. `path` is the model's file, for messages. Prints an error and returns false on failure; nothing needs to be freed then. */
bool roles_make(roles *r, mha_context *ctx, mha_model *model, const mha_data *data, int64_t sample, const char *path);
void roles_free(roles *r); /* a zeroed one is legal */

static inline const mha_role_score *roles_score(const roles *r, int64_t head, int from, int64_t role)
{
    return &r->scores[(head * r->froms + from) * r->count + role];
}

/* Prints what each head does and, for each role, the head that fits it best; 80 columns. */
void roles_table(const term *t, const roles *r);

/* Appends the object, without a newline. */
void roles_json(nn_buffer *out, const roles *r);

#endif
