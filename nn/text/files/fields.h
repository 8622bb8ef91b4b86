/* The fields of a JSON object, in any order: where each value lies in the text. Values are read, or checked, when they are
 * asked for. Errors go to the nn_failure with the name of the field. */
#ifndef NN_TEXT_FILES_FIELDS_H
#define NN_TEXT_FILES_FIELDS_H

#include "io/failure.h"
#include "io/json.h"

enum { NN_FIELDS_MOST = 32, NN_FIELDS_KEY = 40 };

typedef struct nn_fields {
    const nn_failure *to;
    const char *where; /* what the object is, for messages */
    int count;
    nn_json at[NN_FIELDS_MOST];
    char key[NN_FIELDS_MOST][NN_FIELDS_KEY];
} nn_fields;

/* Reads an object. Fields beyond the first 32, with longer names, or that come twice, are errors. */
mha_status nn_fields_read(nn_fields *f, const nn_failure *to, const char *where, nn_json *j);

/* The value of a field; NULL if it is absent or null. */
const nn_json *nn_fields_find(const nn_fields *f, const char *key);

/* Read a value; if it is absent or null, what is there stays. Texts are allocated and may contain a
 * NUL; a NUL also follows them. */
mha_status nn_fields_bool(const nn_fields *f, const char *key, bool *value);
mha_status nn_fields_integer(const nn_fields *f, const char *key, int64_t least, int64_t most, int64_t *value);
mha_status nn_fields_text(const nn_fields *f, const char *key, char **text, size_t *size);

/* The same for one that must be there. */
mha_status nn_fields_need(const nn_fields *f, const char *key);

/* Refuses fields that are not in `known`, names separated by spaces. */
mha_status nn_fields_only(const nn_fields *f, const char *known);

/* The value as a text, allocated; NULL after an error. */
char *nn_json_copy(nn_json *j, size_t *size);

/* A number with a decimal point. */
bool nn_json_real(nn_json *j, double *value);

#endif
