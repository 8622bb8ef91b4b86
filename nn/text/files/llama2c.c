/* Tokenizers of llama2.c: pieces with scores, spaces as they are, and a token for every byte. tokenizer.bin is the length of
 * the longest piece as int32, and for every piece its score as float32, its length as int32, and its bytes. The other form is
 * {"type": "bpe-by-score", "bos_id": 1, "eos_id": 2, "byte_tokens_from": 3, "pieces": [["piece", score], ...]}. */
#include "text/files/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scored {
    float *scores;
    size_t count, room;
} scored;

static mha_status add_scored_piece(nn_load *l, scored *all, const char *piece, size_t size, double score)
{
    if (!isfinite(score) || nn_utf8_valid(piece, size) != size)
        return nn_error(&l->to, MHA_BAD_FILE, "piece %zu is damaged", all->count);
    if (all->count >= NN_VOCABULARY_MOST)
        return nn_error(&l->to, MHA_BAD_FILE, "has more than %d pieces", NN_VOCABULARY_MOST);
    /* The first of equal pieces is the one that is found. */
    int32_t there = nn_vocabulary_find(&l->t->model.vocabulary, piece, size);
    if (nn_vocabulary_add(&l->t->model.vocabulary, piece, size, (int64_t)all->count) ||
        (there >= 0 && nn_vocabulary_add(&l->t->model.vocabulary, piece, size, there)) ||
        nn_grow(&all->scores, &all->room, all->count + 1, sizeof *all->scores))
        return nn_load_memory(l);
    all->scores[all->count++] = (float)score;
    return MHA_OK;
}

static mha_status add_special(nn_load *l, int64_t id, nn_special role)
{
    size_t size = 0;
    const char *piece = nn_vocabulary_piece(&l->t->model.vocabulary, id, &size);
    if (!piece || !size) return nn_error(&l->to, MHA_BAD_FILE, "has no piece %lld", (long long)id);
    nn_added_token *t = nn_added_add(&l->t->added, piece, size, (int32_t)id);
    if (!t) return nn_load_memory(l);
    t->special = true;
    l->t->special[role] = (int32_t)id;
    return MHA_OK;
}

/* All that follows from the pieces. */
static mha_status finish(nn_load *l, scored *all, int64_t bos, int64_t eos, int64_t bytes_from)
{
    nn_word_model *m = &l->t->model;
    char name[8];
    bool *merged = malloc(all->count + 1);
    if (!merged) return nn_load_memory(l);
    for (size_t i = 0; i < all->count; i++)
        merged[i] =
            (int64_t)i != bos && (int64_t)i != eos && ((int64_t)i < bytes_from || (int64_t)i >= bytes_from + 256);
    merged[0] = false;
    mha_status status = nn_load_orders(l, all->scores, merged, all->count);
    free(merged);
    TRY(status);
    for (unsigned b = 0; b < 256; b++) {
        snprintf(name, sizeof name, "<0x%02X>", b);
        if (nn_vocabulary_find(&m->vocabulary, name, 6) != bytes_from + b)
            return nn_error(&l->to, MHA_BAD_FILE, "token %lld is not the byte %s", (long long)bytes_from + b, name);
    }
    m->kind = "BPE";
    m->tokenize = nn_scored_words;
    m->known_only = m->byte_fallback = m->cached = true;
    l->t->format = "llama2.c";
    nn_template_item *item = NULL;
    TRY(add_special(l, bos, NN_BOS));
    TRY(add_special(l, eos, NN_EOS));
    for (int pair = 0; pair < 2; pair++) {
        item = nn_template_add(pair ? &l->t->pair : &l->t->single, -1, 0);
        if (!item || !(item->piece = strdup(nn_vocabulary_piece(&m->vocabulary, bos, NULL)))) return nn_load_memory(l);
        item->id = (int32_t)bos;
    }
    if (!nn_template_add(&l->t->single, 0, 0) || !nn_template_add(&l->t->pair, 0, 0) ||
        !nn_template_add(&l->t->pair, 1, 1))
        return nn_load_memory(l);
    return nn_load_parts(l, "{\"type\": \"Prepend\", \"prepend\": \" \"}", NULL,
                         "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, "
                         "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}");
}

static uint32_t little_endian(const char *at)
{
    const unsigned char *p = (const unsigned char *)at;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Files differ in how they spell the first tokens: those of bytes may be the bytes themselves, with an encoding of their own
 * above 127, and those that begin and end a text may have newlines around them. Their ids say what they are. */
static mha_status add_piece(nn_load *l, scored *all, const char *piece, size_t size, double score)
{
    static const char *const names[] = {"<unk>", "<s>", "</s>"};
    char byte[8];
    if (all->count < 3) return add_scored_piece(l, all, names[all->count], strlen(names[all->count]), score);
    if (all->count >= 259) return add_scored_piece(l, all, piece, size, score);
    snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(all->count - 3));
    return add_scored_piece(l, all, byte, 6, score);
}

static mha_status read_pieces(nn_load *l, scored *all, const char *bytes, size_t size)
{
    if (size < 4) return nn_error(&l->to, MHA_BAD_FILE, "is shorter than a tokenizer of llama2.c");
    uint32_t longest = little_endian(bytes);
    for (size_t at = 4; at < size;) {
        if (size - at < 8) return nn_error(&l->to, MHA_BAD_FILE, "ends inside piece %zu", all->count);
        uint32_t bits = little_endian(bytes + at), length = little_endian(bytes + at + 4);
        float score;
        memcpy(&score, &bits, sizeof score);
        at += 8;
        if (length > longest || length > size - at)
            return nn_error(&l->to, MHA_BAD_FILE, "piece %zu has %u bytes, more than the file says or has", all->count,
                            length);
        TRY(add_piece(l, all, bytes + at, length, (double)score));
        at += length;
    }
    if (all->count > 259) return MHA_OK;
    return nn_error(&l->to, MHA_BAD_FILE, "has %zu pieces; a tokenizer of llama2.c has at least 260", all->count);
}

mha_status nn_load_llama2c(nn_load *l, const char *bytes, size_t size)
{
    scored all = {0};
    mha_status status = read_pieces(l, &all, bytes, size);
    if (!status) status = finish(l, &all, 1, 2, 3);
    free(all.scores);
    return status;
}

static mha_status read_list(nn_load *l, scored *all, nn_json list)
{
    bool opened = nn_json_peek(&list) == '[' && nn_json_enter(&list, '[');
    while (opened && nn_json_more(&list, ']')) {
        size_t length = 0;
        double score = 0;
        char *piece = NULL;
        bool good = nn_json_peek(&list) == '[' && nn_json_enter(&list, '[') && nn_json_more(&list, ']') &&
                    nn_json_peek(&list) == '"' && (piece = nn_json_copy(&list, &length)) && nn_json_more(&list, ']') &&
                    nn_json_real(&list, &score) && !nn_json_more(&list, ']');
        mha_status status = good ? add_scored_piece(l, all, piece, length, score)
                                 : nn_error(&l->to, MHA_BAD_FILE, "piece %zu must be a text and a score", all->count);
        free(piece);
        TRY(status);
    }
    if (all->count > 259) return MHA_OK;
    return nn_error(&l->to, MHA_BAD_FILE, "has %zu pieces; such a tokenizer has at least 260", all->count);
}

mha_status nn_load_llama2c_json(nn_load *l, const char *text, size_t size)
{
    scored all = {0};
    int64_t bos = 1, eos = 2, from = 3;
    nn_json j = nn_json_open(text, size);
    nn_fields f;
    j.nul = true;
    TRY(nn_fields_read(&f, &l->to, "the tokenizer", &j));
    TRY(nn_fields_only(&f, "type bos_id eos_id byte_tokens_from pieces"));
    TRY(nn_fields_need(&f, "pieces"));
    TRY(nn_fields_integer(&f, "bos_id", 0, NN_VOCABULARY_MOST, &bos));
    TRY(nn_fields_integer(&f, "eos_id", 0, NN_VOCABULARY_MOST, &eos));
    TRY(nn_fields_integer(&f, "byte_tokens_from", 0, NN_VOCABULARY_MOST, &from));
    mha_status status = read_list(l, &all, *nn_fields_find(&f, "pieces"));
    if (!status) status = finish(l, &all, bos, eos, from);
    free(all.scores);
    return status;
}
