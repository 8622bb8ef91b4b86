/* From pieces back to text. A decoder changes a list of texts; a Sequence is a chain of them; at the end the list is
 * joined. */
#ifndef NN_TEXT_DECODE_H
#define NN_TEXT_DECODE_H

#include "text/steps.h"

typedef enum nn_list_failure {
    NN_LIST_GOOD,
    NN_LIST_NO_MEMORY,
    NN_LIST_TOO_LONG,
    NN_LIST_TOO_MANY_STEPS
} nn_list_failure;

/* A list of texts: one block of bytes, and where each text ends. */
typedef struct nn_list {
    char *bytes;
    size_t size, room;
    size_t most; /* bytes that it may have; 0: any number */
    size_t *ends;
    size_t count, end_room;
    nn_list_failure failed; /* the first failure */
} nn_list;

typedef struct nn_decoder nn_decoder;
typedef void nn_decode(const nn_decoder *d, nn_list *out, const nn_list *in);

struct nn_decoder {
    nn_decode *decode;
    nn_pattern pattern;
    char *content; /* what is inserted; the prefix of WordPiece, the suffix of BPEDecoder, the padding of CTC */
    size_t content_size;
    char *word; /* (word_size) of CTC: the token between words; of SentencePiece: the text of the unknown token */
    size_t word_size;
    int32_t code; /* the character of Metaspace and Strip */
    int64_t start, stop;
    bool flag;           /* Metaspace, SentencePiece: the first space was added; WordPiece, CTC: clean up */
    bool bytes, squeeze; /* SentencePiece: there are byte pieces; spaces at the beginning are dropped */
};

typedef struct nn_decoders {
    nn_decoder *at;
    size_t count, room;
    bool join_spaces; /* there is no decoder: a space between tokens */
} nn_decoders;

nn_decoder *nn_decoders_add(nn_decoders *d, nn_decode *decode);
void nn_decoders_free(nn_decoders *d);

/* What decoding writes into; zeroed, it is empty. */
typedef struct nn_decoding {
    nn_list in, out;
    char error[160]; /* the reason after a failure */
} nn_decoding;
void nn_decoding_free(nn_decoding *d);

void nn_list_clear(nn_list *l);
void nn_list_put(nn_list *l, const char *bytes, size_t size); /* to the last text, which nn_list_end closes */
void nn_list_end(nn_list *l);

/* Decodes d->in and leaves the joined text there. Returns MHA_OK, MHA_NO_MEMORY or MHA_BAD_ARGUMENT. */
mha_status nn_decoders_run(const nn_decoders *s, nn_decoding *d);

nn_decode nn_decode_bytes, nn_decode_fallback, nn_decode_fuse, nn_decode_replace, nn_decode_strip, nn_decode_metaspace,
    nn_decode_wordpiece, nn_decode_bpe, nn_decode_ctc, nn_decode_sentencepiece;

/* Text i of a list. */
const char *nn_list_text(const nn_list *l, size_t i, size_t *size);
void nn_list_free(nn_list *l);

/* The byte of a token such as <0x0A>; -1 for any other token. */
int nn_byte_of(const char *text, size_t size);

#endif
