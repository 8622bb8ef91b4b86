/* Text that grows and ends at a stop string, and how much of it can be shown.
 *
 *     nn_stop s;
 *     nn_stop_create(&s, strings, count);           once for all sequences
 *     nn_stop_text t = {0};                         one for each sequence, with nn_stop_text_create
 *     if (nn_stop_feed(&t, &s, bytes, count)) ...   the text ends after t.ends bytes
 *     nn_stop_shown(&t, text, size)                 so many bytes of the text may be shown now
 *
 * A stop string is found as soon as its last byte is there, wherever tokens begin and end, and what it leaves of the text
 * is what stands before it. Bytes that may still become part of a stop string are held back, and so is the beginning of a
 * UTF-8 character whose other bytes are still to come. Every byte is looked at once for each string (Knuth, Morris and
 * Pratt). */
#ifndef NN_GENERATE_STOP_H
#define NN_GENERATE_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nn_stop {
    int64_t count;
    char **string;   /* (count): copies */
    size_t *length;  /* (count) */
    size_t **border; /* (count)(length+1): of the first n bytes, the longest proper prefix that is also their end */
} nn_stop;

/* Copies the strings, none of which is empty. False: out of memory; nothing needs to be freed then. */
bool nn_stop_create(nn_stop *s, const char *const *strings, int64_t count);
void nn_stop_free(nn_stop *s); /* all zero is legal */

typedef struct nn_stop_text {
    size_t *matched; /* (count): bytes of each string that the text ends with */
    size_t size;     /* of the text so far */
    size_t ends;     /* where it ends, once a stop string is there; else `size` */
    bool found;
} nn_stop_text;

bool nn_stop_text_create(nn_stop_text *t, const nn_stop *s); /* false: out of memory */
void nn_stop_text_free(nn_stop_text *t);                     /* all zero is legal */

/* Adds bytes to the text. True if it has ended, now or before; bytes behind the end are not looked at. */
bool nn_stop_feed(nn_stop_text *t, const nn_stop *s, const char *bytes, size_t count);

/* How many bytes of the text (t->size) can be shown: up to its end, if it has ended or `last` says that no more will
 * come; else what no stop string and no character may still claim. */
size_t nn_stop_shown(const nn_stop_text *t, const nn_stop *s, const char *text, bool last);

/* How many of the bytes are whole UTF-8 characters: all but the beginning of one at the end. Bytes that are no UTF-8 count
 * as whole. */
size_t nn_utf8_whole(const char *bytes, size_t size);

#endif
