/* What `mha transcribe` is asked for, and its parts. */
#ifndef TRANSCRIBE_H
#define TRANSCRIBE_H

#include "cli/common/language.h"

#include <mha_speech.h>

typedef struct transcribe_request {
    const char *model, *tokenizer, *language, *task; /* NULL if not given */
    cli_list files;
    int64_t tokens, beams, threads;
    mha_type type;
    bool json, quiet;
} transcribe_request;

/* A window of a sound, and what is said in it. */
typedef struct transcribe_window {
    double start, end; /* seconds */
    nn_buffer text;
    int32_t *tokens; /* (count) */
    int64_t count;
    mha_finish finish;
} transcribe_window;

/* A sound file. */
typedef struct transcribe_file {
    const char *path;
    mha_sound *sound;
    mha_speech_prompt prompt;
    transcribe_window *windows; /* (count) */
    int64_t count;
} transcribe_file;

/* How long it took. */
typedef struct transcribe_times {
    double sound, seconds; /* of all files; spent on them */
    int64_t tokens;
} transcribe_times;

/* More of the text of a file: without the spaces that it begins with, which `begun` remembers. */
bool transcribe_show(const char *text, size_t length, bool *begun);

/* All files as one JSON object. */
bool transcribe_print_json(const transcribe_request *r, const transcribe_file *files, const transcribe_times *t);

/* One line on standard error. */
void transcribe_print_times(const transcribe_times *t);

#endif
