/* What `mha generate` is asked for, and its parts. */
#ifndef GENERATE_H
#define GENERATE_H

#include "cli/common/language.h"

typedef struct generate_request {
    const char *model, *tokenizer, *file; /* NULL if not given */
    cli_list texts, ids, stops, stop_ids;
    mha_generation_options how; /* the lists of stops are added later */
    int64_t threads;
    mha_type type;
    bool greedy, sample, json, new_only, quiet;
} generate_request;

/* What goes in: prompts as texts, where there are any, and as tokens. */
typedef struct generate_prompts {
    int64_t count;
    char **text;     /* (count), or NULL: they were given as ids */
    int32_t *tokens; /* one prompt behind another */
    int64_t *starts; /* (count+1) */
} generate_prompts;

/* From -p, --prompts and --ids; texts are encoded with the tokenizer. Prints an error and returns false on failure. Must be
 * freed in either case. */
bool generate_read(generate_prompts *p, mha_context *ctx, const generate_request *r, const mha_tokenizer *tokenizer);
void generate_free(generate_prompts *p); /* a zeroed one is legal */

/* How long it took. */
typedef struct generate_times {
    double prompt, rest; /* seconds of the first step, and of the others */
    int64_t prompt_tokens, new_tokens, rest_tokens;
} generate_times;

/* All sequences once they have ended: as texts, or as one JSON object. */
void generate_print(const mha_generation *g, const generate_prompts *p, bool new_only, bool encoder);
bool generate_print_json(const mha_generation *g, const generate_prompts *p, const generate_request *r,
                         const generate_times *t);

/* One line on standard error. */
void generate_print_times(const generate_times *t);

#endif
