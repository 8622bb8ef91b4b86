/* What the decoder of Whisper starts with, as generation_config.json says and its library does:
 *
 *     start token, language, task, no_timestamps_token_id
 *
 * With a language or a task, from the caller or from the file, these are the tokens of lang_to_id and task_to_id; a missing
 * task is "transcribe", and a missing language is to be detected. With neither, forced_decoder_ids replace both: pairs of
 * a place, counted from 1, and a token, or null for a language that is to be detected. */
#ifndef NN_GENERATE_SPEECH_H
#define NN_GENERATE_SPEECH_H

#include "io/failure.h"
#include <stdint.h>

enum { NN_SPEECH_NAME = 24, NN_SPEECH_FORCED = 12, NN_SPEECH_PROMPT = NN_SPEECH_FORCED + 4 };

/* Names and their tokens: "<|en|>" of languages, "transcribe" of tasks. */
typedef struct nn_speech_names {
    struct nn_speech_token {
        char name[NN_SPEECH_NAME];
        int32_t id;
    } * all; /* (count) */
    int64_t count;
} nn_speech_names;

typedef struct nn_speech_config {
    nn_speech_names languages, tasks; /* lang_to_id, task_to_id */
    int32_t forced[NN_SPEECH_FORCED]; /* of forced_decoder_ids, from place 1 on; -1: null */
    int forced_count;
    int32_t no_timestamps;                               /* no_timestamps_token_id; -1: none */
    bool english_only;                                   /* is_multilingual is false */
    char language[NN_SPEECH_NAME], task[NN_SPEECH_NAME]; /* or "" */
} nn_speech_config;

void nn_speech_config_defaults(nn_speech_config *c);
void nn_speech_config_free(nn_speech_config *c); /* one with defaults, or all zero, is legal */

/* Reads a JSON object over what `c` holds, like nn_generation_config_read; other keys are passed over. */
bool nn_speech_config_read(nn_speech_config *c, const char *text, size_t size, const nn_failure *to);

/* The prompt behind the start token `start`. `language` is a name of lang_to_id, with its brackets or without, `task` one of
 * task_to_id; NULL: not given. `detect` becomes the place of the language that is to be detected, or -1. False, with one
 * line in `to`, if the model has no such language or task. */
typedef struct nn_speech_prompt {
    int32_t tokens[NN_SPEECH_PROMPT];
    int count, detect;
} nn_speech_prompt;
bool nn_speech_prompt_make(nn_speech_prompt *p, const nn_speech_config *c, int32_t start, const char *language,
                           const char *task, const nn_failure *to);

/* The language with the largest of logits (V). -1: there is none below V. */
int32_t nn_speech_detect(const nn_speech_config *c, const float *logits, int64_t V);

/* The name of a language's token, without brackets, or of a task's; "" if the prompt has none. */
void nn_speech_names_of(char language[NN_SPEECH_NAME], char task[NN_SPEECH_NAME], const nn_speech_config *c,
                        const nn_speech_prompt *p);

#endif
