/* What most commands work on: a context, a model from a file, and a data set that fits it.
 *
 *     session s;
 *     if (session_open(&s, &request.from) && session_open_data(&s, true)) ... s.model, s.data ...
 *     session_close(&s);
 */
#ifndef SESSION_H
#define SESSION_H

#include "cli/common/data.h"
#include "cli/common/model.h"

typedef struct session_from {
    const char *file, *folder; /* the model; the data set, NULL for data_default */
    int64_t heads, threads;    /* 0 for those of the file, and for all */
    mha_type type;             /* of the matrix products */
    bool gaps;                 /* tensors may be missing or left over: the model is not run */
} session_from;

typedef struct session {
    const session_from *from;
    mha_context *ctx;
    mha_model *model;
    mha_model_info about;
    mha_data *data;
    mha_data_info set;
} session;

/* Creates the context and opens the model. Prints an error and returns false on failure. Must be closed in either case.
 * */
bool session_open(session *s, const session_from *from);

/* Opens the data set (data_open). Prints an error and returns false on failure, or if it does not fit the model. */
bool session_open_data(session *s, bool test_only);

void session_close(session *s); /* a zeroed one is legal */

#endif
