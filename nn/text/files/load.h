/* Tokenizers from files. All of them fill in an nn_tokenizer that nn_tokenizer_prepare finishes; errors leave
 * their line in nn_load. */
#ifndef NN_TEXT_FILES_LOAD_H
#define NN_TEXT_FILES_LOAD_H

#include "text/files/fields.h"
#include "text/tokenizer.h"

/* What tokenizer_config.json and special_tokens_map.json say; texts are NULL and flags -1 if they do not. */
typedef struct nn_text_config {
    char *class, *source_language;
    char *special[NN_SPECIALS];
    int add_bos, add_eos, lower, accents, ideographs, prefix_space;
    char *text;    /* of tokenizer_config.json, */
    nn_json added; /* and its added_tokens_decoder; without text: none */
    bool no_memory;
} nn_text_config;

typedef struct nn_load {
    nn_tokenizer *t;
    nn_failure to;
    const char *folder; /* of the file, where others may lie; NULL: none can be read */
    nn_text_config config;
    bool target; /* of files with two sides, such as those of translation models: the target's */
    bool cased;  /* vocab.txt: text is not changed to lower case */
} nn_load;

mha_status nn_load_memory(const nn_load *l); /* fails: no memory */

/* Reads a file beside that of the tokenizer; *bytes is NULL if there is none, which is no error. `size` gets its bytes. */
mha_status nn_load_beside(nn_load *l, const char *name, char **bytes, size_t *size);

/* Reads the config; a file that is missing or damaged says nothing; one that cannot be read is an error. And applies what
 * it says: special tokens, added tokens if the tokenizer's file has none itself, and what is put around a text. */
mha_status nn_text_config_read(nn_load *l);
void nn_text_config_free(nn_text_config *c);
mha_status nn_text_config_apply(nn_load *l);
mha_status nn_text_config_template(nn_load *l, const char *fallback);

/* The other formats. */
mha_status nn_load_sentencepiece(nn_load *l, const char *bytes, size_t size);
mha_status nn_load_vocab_json(nn_load *l, const char *text, size_t size);
mha_status nn_load_merges(nn_load *l, const char *text, size_t size);
mha_status nn_load_vocab_txt(nn_load *l, const char *text, size_t size);
mha_status nn_load_characters(nn_load *l, const char *text, size_t size);
mha_status nn_load_llama2c(nn_load *l, const char *bytes, size_t size);
mha_status nn_load_llama2c_json(nn_load *l, const char *text, size_t size);

/* Orders of merges from scores, and ids from a vocab.json beside a SentencePiece model. */
mha_status nn_load_orders(nn_load *l, const float *scores, const bool *merged, size_t count);
mha_status nn_load_renamed(nn_load *l, const char *text, size_t size);

/* A vocabulary {"piece": id, ...} of a whole file, or of a value. */
mha_status nn_load_pieces(nn_load *l, nn_vocabulary *into, nn_json *at, const char *where);

/* Parts of a tokenizer.json, given as JSON; NULL: none. */
mha_status nn_load_parts(nn_load *l, const char *normalizer, const char *splitter, const char *decoder);

/* tokenizer.json of the `tokenizers` library. */
mha_status nn_load_json(nn_load *l, const char *text, size_t size);

/* Its parts: a value of the object, which may be null. */
mha_status nn_load_normalizer(nn_load *l, const nn_json *at, nn_steps *steps);
mha_status nn_load_splitter(nn_load *l, const nn_json *at, nn_steps *steps);
mha_status nn_load_model(nn_load *l, const nn_json *at);
mha_status nn_load_processor(nn_load *l, const nn_json *at);
mha_status nn_load_decoder(nn_load *l, const nn_json *at, nn_decoders *decoders);

/* The steps of byte-level BPE: GPT-2's split into words, if `words`, and characters for bytes. `where` is for messages. */
mha_status nn_load_bytes(nn_load *l, nn_steps *steps, const char *where, bool prefix_space, bool words);

/* A component of the file: {"type": name, ...}. */
typedef struct nn_component {
    const char *type, *fields; /* fields that it may have */
    mha_status (*read)(nn_load *l, const nn_fields *f,
                       void *into); /* NULL: a sequence, in the second one of its fields */
} nn_component;

/* Reads the component that the type names, from a table that a NULL type ends. */
mha_status nn_load_component(nn_load *l, const nn_json *at, const char *where, const nn_component *table, void *into);

/* {"String": text} or {"Regex": text} in the field "pattern". */
mha_status nn_load_pattern(nn_load *l, const nn_fields *f, nn_pattern *pattern);

/* A text of one character in a field. */
mha_status nn_load_code(nn_load *l, const nn_fields *f, const char *field, int32_t *code);

#endif
