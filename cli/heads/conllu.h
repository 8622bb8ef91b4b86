/* Sentences with relations between words, in CoNLL-U:
 *
 *     conllu c;
 *     if (!conllu_read(&c, "en_gum.conllu", 1000, error, sizeof error)) puts(error);
 *     conllu_free(&c);
 *
 * Of a word: ID, FORM, HEAD, DEPREL (a subtype such as nsubj:pass is part of it), and of MISC SpaceAfter=No, Coref=ID and
 * Entity=(ID...). Words of a multiword token (ID 3-4) stand for its characters together. Empty nodes (ID 3.1) are skipped. A
 * word without a HEAD ("_") has no dependency. Each word with Coref=ID, and each first word of an Entity's mention, is linked
 * to the nearest one before it in the sentence with the same ID, as relation "coref". */
#ifndef HEADS_CONLLU_H
#define HEADS_CONLLU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A stretch of a sentence's text that words stand for; in bytes. */
typedef struct conllu_word {
    int64_t start, end;
} conllu_word;

typedef struct conllu_link {
    int64_t sentence, from, to; /* words of the sentence, counted as stretches */
    int64_t relation;
} conllu_link;

typedef struct conllu_sentence {
    int64_t text, length; /* its bytes in `text` of all */
    int64_t word, words;  /* the first of its stretches, and how many */
} conllu_sentence;

typedef struct conllu {
    char *text; /* of all sentences, one behind another */
    size_t size;
    conllu_sentence *sentences;
    int64_t count;
    conllu_word *words;
    int64_t word_count;
    conllu_link *links; /* sentence after sentence */
    int64_t link_count;
    char **relations; /* names */
    int64_t relation_count;
} conllu;

/* Reads up to `most` sentences. Returns false on error, with one line in `error` that names the file and the line; nothing
 * needs to be freed then. */
bool conllu_read(conllu *c, const char *path, int64_t most, char *error, size_t error_size);
void conllu_free(conllu *c); /* a zeroed one is legal */

#endif
