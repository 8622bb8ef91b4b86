/* mha heads MODEL --text FILE: what every head of a text model attends to. */
#ifndef HEADS_TEXT_H
#define HEADS_TEXT_H

#include "cli/common/session.h"
#include "cli/common/texts.h"
#include "cli/draw/term.h"
#include "cli/heads/table.h"
#include "cli/maps/file.h"
#include "io/buffer.h"

typedef struct heads_request {
    session_from from;
    const char *out; /* NULL if not given, as all names of files */
    int64_t sample;  /* images, windows, lines or sentences; 0 if not given */
    heads_sort sort;
    maps_format format;
    term_when when;
    bool ablate, json;

    /* Of a model of images. */
    int64_t importance_images; /* 0 if not given */
    bool roles;

    /* Of a text model. */
    const char *text, *audio, *target, *tokenizer, *relations;
    int64_t window; /* 0 if not given */
    uint64_t seed;
} heads_request;

/* Surveys the heads of an open model and prints the result. Prints an error and returns false on failure. */
bool text_heads(const heads_request *r, session *s);

/* A survey with its numbers at hand. */
typedef struct text_survey {
    mha_text_survey *of;
    mha_text_survey_info info;
    mha_text_head *heads;   /* (info.heads), attention after attention */
    int64_t tokens, window; /* of the text; of a window, or 0 with unlike lengths */
    int64_t unused;         /* tokens of the text that are in no window */
    bool pair, audio;
    double seconds;
} text_survey;

/* The table; returns false, without printing anything, if out of memory. `file` is the model, `text` the text's name. */
bool text_table(const term *t, const text_survey *s, heads_sort sort, const char *file, const char *text);

/* As a JSON object. */
void text_json(nn_buffer *out, const text_survey *s);

#endif
