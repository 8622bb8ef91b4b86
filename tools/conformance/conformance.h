/* Kinds of cases that mha conformance runs. `takes` says whether an entry of a folder is one; `run` runs it, prints one
 * line per case and counts them. The entry "." is the folder itself. */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <mha.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct conformance_count {
    size_t passed, failed;
} conformance_count;

/* A folder with a tokenizer and cases.json. */
bool conformance_is_tokenizer(const char *folder, const char *name);
void conformance_run_tokenizer(mha_context *ctx, const char *folder, const char *name, conformance_count *count);

/* A folder with config.json and expected.safetensors. */
bool conformance_is_model(const char *folder, const char *name);
void conformance_run_model(mha_context *ctx, const char *folder, const char *name, conformance_count *count);

#endif
