/* What `mha embed` is asked for, and its results. */
#ifndef EMBED_H
#define EMBED_H

#include "cli/common/language.h"

typedef struct embed_request {
    const char *model, *tokenizer, *lines, *pool, *prompt; /* NULL if not given */
    cli_list texts;
    bool raw, truncate, json;
    mha_type type;
    int64_t threads;
    term_when when;
} embed_request;

typedef struct embed_results {
    language_texts texts; /* N of them */
    mha_embedder *embedder;
    mha_embedder_info about; /* of it */
    int64_t *lengths;        /* (N): tokens that went in */
    float *values;           /* (N,M) */
    double seconds;          /* of the model */
} embed_results;

void embed_print(const embed_request *r, const embed_results *e);
bool embed_print_json(const embed_request *r, const embed_results *e);

#endif
