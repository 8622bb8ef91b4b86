/* config.json, as a source of facts: every question searches the text, which is small.
 *
 *     nn_config c;
 *     if (!nn_config_open(&c, "model/config.json", error, sizeof error)) puts(error);
 *     nn_fact width = nn_config_find(&c, "hidden_size|n_embd"), theta = nn_config_find(&c, "rope_parameters.rope_theta");
 *     nn_config_free(&c);
 */
#ifndef NN_FAMILIES_CONFIG_H
#define NN_FAMILIES_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nn_config {
    char *text;
    size_t size;
    const char *name; /* for messages */
} nn_config;

/* A value as it is written in the file; text NULL: there is none. */
typedef struct nn_fact {
    const char *text;
    size_t size;
} nn_fact;

/* A file, which is checked as JSON; or a text of the caller's, which must stay. Returns false with one line in `error`. */
bool nn_config_open(nn_config *c, const char *path, char *error, size_t error_size);
bool nn_config_text(nn_config *c, const char *text, const char *name, char *error, size_t error_size);
void nn_config_free(nn_config *c); /* of nn_config_open alone */

/* The value of a key, or of the first of several, "a|b", that is there; "a.b" is key b of object a. */
nn_fact nn_config_find(const nn_config *c, const char *path);
nn_fact nn_fact_find(nn_fact object, const char *key);
static inline nn_fact nn_fact_of(const char *text, size_t size) { return (nn_fact){text, size}; }

bool nn_fact_is_null(nn_fact f);
bool nn_fact_is(nn_fact f, const char *text); /* whether it is written so, or is this string */

/* False, and nothing changes, if it is no such value. */
bool nn_fact_int(nn_fact f, int64_t *value);
bool nn_fact_real(nn_fact f, double *value);
bool nn_fact_truth(nn_fact f, bool *value);
bool nn_fact_string(nn_fact f, char *out, size_t room);

/* Elements of an array, or members of an object; element n of an array. */
int64_t nn_fact_count(nn_fact f);
nn_fact nn_fact_item(nn_fact array, int64_t n);

/* The members of an object one after another, in time that grows with its size: `at` starts as 0; the key is as it is written,
 * without its quotes. False at the end. */
bool nn_fact_next(nn_fact object, size_t *at, nn_fact *key, nn_fact *value);

#endif
