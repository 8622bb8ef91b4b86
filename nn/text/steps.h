/* The steps of normalizers and pre-tokenizers. A component of a tokenizer file becomes one or more of them; a Sequence
 * becomes those of its members. */
#ifndef NN_TEXT_STEPS_H
#define NN_TEXT_STEPS_H

#include "text/flow.h"
#include "text/precompiled.h"
#include "text/trie.h"
#include "text/unicode.h"

/* What is searched for: a text, or a regular expression. */
typedef struct nn_pattern {
    char *text; /* (size); of an expression, as the file has it */
    size_t size;
    nn_expression *expression; /* NULL: the text */
} nn_pattern;
void nn_pattern_free(nn_pattern *p);

/* Calls `each` for the matches and for what lies between them, in order; all of them cover the text. As Oniguruma's
 * iterator does, an empty match right behind another match is left out. Returns
 * MHA_OK, MHA_NO_MEMORY or MHA_BAD_ARGUMENT (too many steps). */
typedef void nn_pattern_each(void *user, size_t start, size_t end, bool match);
mha_status nn_pattern_all(const nn_pattern *p, nn_matcher *m, const char *text, size_t size, nn_pattern_each *each,
                          void *user);

/* Records that nn_pattern_all has failed. */
void nn_pattern_fail(const nn_pattern *p, nn_flow *f);

typedef struct nn_step {
    nn_edit *edit; /* or */
    nn_cut *cut;
    nn_pattern pattern;
    char *content; /* (content_size) what is inserted */
    size_t content_size;
    nn_char_class *is;
    nn_behavior behavior;
    bool invert;
    bool left, right; /* of Strip */
    bool first;       /* insert at the beginning of the text alone, not of every part */
    bool unless;      /* insert only if the part does not begin with the content */
    bool compose, compatible;
    int64_t length; /* characters of FixedLength */
    /* of SentencePiece: a space is put before the text, or behind it; spaces become U+2581; runs of them become one */
    bool prefix, suffixed, escape, squeeze;
    const nn_trie *keep;         /* pieces that are not changed; NULL: none */
    nn_precompiled *precompiled; /* of SentencePiece; owned */
} nn_step;

typedef struct nn_steps {
    nn_step *at;
    size_t count, room;
    bool track; /* a step asks where a part lies in the caller's text */
} nn_steps;

/* A new step at the end, all zero but for its function; NULL without memory. */
nn_step *nn_steps_edit(nn_steps *s, nn_edit *edit);
nn_step *nn_steps_cut(nn_steps *s, nn_cut *cut);
void nn_steps_free(nn_steps *s);
void nn_steps_run(const nn_steps *s, nn_flow *f);

/* normalize.c */
nn_edit nn_edit_insert;    /* content, before the part */
nn_edit nn_edit_replace;   /* matches of the pattern by the content */
nn_edit nn_edit_strip;     /* white space at the sides */
nn_edit nn_edit_drop;      /* characters of the class */
nn_edit nn_edit_clean;     /* as BERT does: control characters dropped, white space to ' ' */
nn_edit nn_edit_ideograph; /* spaces around ideographs */
nn_edit nn_edit_lower;
nn_edit nn_edit_bytes; /* bytes to the characters of byte-level BPE */
nn_edit nn_edit_nmt;

/* normalize_unicode.c */
nn_edit nn_edit_normalize;   /* NFC, NFD, NFKC, NFKD */
nn_edit nn_edit_precompiled; /* SentencePiece's table, applied to grapheme clusters as `tokenizers` does */

/* sentencepiece.c */
nn_edit nn_edit_sentencepiece;

/* split.c */
nn_cut nn_cut_pattern;
nn_cut nn_cut_class; /* every character of the class is a match */
nn_cut nn_cut_words; /* runs of word characters, and of others that are not white space */
nn_cut nn_cut_length;

/* The byte that a code point stands for in byte-level BPE; -1 for none. */
int nn_code_byte(int32_t code);

#endif
