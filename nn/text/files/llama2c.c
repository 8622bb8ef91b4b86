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

static bool add_scored_piece(nn_load *l, scored *all, const char *piece, size_t size, double score)
{
    if (!isfinite(score) || nn_utf8_valid(piece, size) != size)
        return nn_fail(&l->to, "piece %zu is damaged", all->count);
    if (all->count >= NN_VOCABULARY_MOST) return nn_fail(&l->to, "has more than %d pieces", NN_VOCABULARY_MOST);
    /* The first of equal pieces is the one that is found. */
    int32_t there = nn_vocabulary_find(&l->t->model.vocabulary, piece, size);
    if (!nn_vocabulary_add(&l->t->model.vocabulary, piece, size, (int64_t)all->count) ||
        (there >= 0 && !nn_vocabulary_add(&l->t->model.vocabulary, piece, size, there)) ||
        !nn_grow(&all->scores, &all->room, all->count + 1, sizeof *all->scores))
        return nn_load_memory(l);
    all->scores[all->count++] = (float)score;
    return true;
}

static bool special(nn_load *l, int64_t id, nn_special role)
{
    size_t size = 0;
    const char *piece = nn_vocabulary_piece(&l->t->model.vocabulary, id, &size);
    if (!piece || !size) return nn_fail(&l->to, "has no piece %lld", (long long)id);
    nn_added_token *t = nn_added_add(&l->t->added, piece, size, (int32_t)id);
    if (!t) return nn_load_memory(l);
    t->special = true;
    l->t->special[role] = (int32_t)id;
    return true;
}

/* All that follows from the pieces. */
static bool finish(nn_load *l, scored *all, int64_t bos, int64_t eos, int64_t bytes_from)
{
    nn_word_model *m = &l->t->model;
    char name[8];
    bool *merged = malloc(all->count + 1);
    if (!merged) return nn_load_memory(l);
    for (size_t i = 0; i < all->count; i++)
        merged[i] =
            (int64_t)i != bos && (int64_t)i != eos && ((int64_t)i < bytes_from || (int64_t)i >= bytes_from + 256);
    merged[0] = false;
    bool done = nn_load_orders(l, all->scores, merged, all->count);
    free(merged);
    for (unsigned b = 0; done && b < 256; b++) {
        snprintf(name, sizeof name, "<0x%02X>", b);
        if (nn_vocabulary_find(&m->vocabulary, name, 6) != bytes_from + b)
            done = nn_fail(&l->to, "token %lld is not the byte %s", (long long)bytes_from + b, name);
    }
    m->kind = "BPE";
    m->tokenize = nn_scored_words;
    m->known_only = m->byte_fallback = m->cached = true;
    l->t->format = "llama2.c";
    nn_template_item *item = NULL;
    if (!done || !special(l, bos, NN_BOS) || !special(l, eos, NN_EOS)) return false;
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
static bool add_piece(nn_load *l, scored *all, const char *piece, size_t size, double score)
{
    static const char *const names[] = {"<unk>", "<s>", "</s>"};
    char byte[8];
    if (all->count < 3) return add_scored_piece(l, all, names[all->count], strlen(names[all->count]), score);
    if (all->count >= 259) return add_scored_piece(l, all, piece, size, score);
    snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(all->count - 3));
    return add_scored_piece(l, all, byte, 6, score);
}

bool nn_load_llama2c(nn_load *l, const char *bytes, size_t size)
{
    scored all = {0};
    bool done = size >= 4 || nn_fail(&l->to, "is shorter than a tokenizer of llama2.c");
    uint32_t longest = done ? little_endian(bytes) : 0;
    for (size_t at = 4; done && at < size;) {
        if (size - at < 8) {
            done = nn_fail(&l->to, "ends inside piece %zu", all.count);
            break;
        }
        uint32_t bits = little_endian(bytes + at), length = little_endian(bytes + at + 4);
        float score;
        memcpy(&score, &bits, sizeof score);
        at += 8;
        if (length > longest || length > size - at) {
            done = nn_fail(&l->to, "piece %zu has %u bytes, more than the file says or has", all.count, length);
            break;
        }
        done = add_piece(l, &all, bytes + at, length, (double)score);
        at += length;
    }
    done =
        done &&
        (all.count > 259 || nn_fail(&l->to, "has %zu pieces; a tokenizer of llama2.c has at least 260", all.count)) &&
        finish(l, &all, 1, 2, 3);
    free(all.scores);
    return done;
}

bool nn_load_llama2c_json(nn_load *l, const char *text, size_t size)
{
    scored all = {0};
    int64_t bos = 1, eos = 2, from = 3;
    nn_json j = nn_json_open(text, size);
    nn_fields f;
    j.nul = true;
    if (!nn_fields_read(&f, &l->to, "the tokenizer", &j) ||
        !nn_fields_only(&f, "type bos_id eos_id byte_tokens_from pieces") || !nn_fields_need(&f, "pieces") ||
        !nn_fields_integer(&f, "bos_id", 0, NN_VOCABULARY_MOST, &bos) ||
        !nn_fields_integer(&f, "eos_id", 0, NN_VOCABULARY_MOST, &eos) ||
        !nn_fields_integer(&f, "byte_tokens_from", 0, NN_VOCABULARY_MOST, &from))
        return false;
    nn_json list = *nn_fields_find(&f, "pieces");
    bool done = nn_json_peek(&list) == '[' && nn_json_enter(&list, '[');
    while (done && nn_json_more(&list, ']')) {
        size_t length = 0;
        double score = 0;
        char *piece = NULL;
        done = nn_json_peek(&list) == '[' && nn_json_enter(&list, '[') && nn_json_more(&list, ']') &&
               nn_json_peek(&list) == '"' && (piece = nn_json_copy(&list, &length)) && nn_json_more(&list, ']') &&
               nn_json_real(&list, &score) && !nn_json_more(&list, ']');
        if (!done) nn_fail(&l->to, "piece %zu must be a text and a score", all.count);
        else done = add_scored_piece(l, &all, piece, length, score);
        free(piece);
    }
    done = done &&
           (all.count > 259 || nn_fail(&l->to, "has %zu pieces; such a tokenizer has at least 260", all.count)) &&
           finish(l, &all, bos, eos, from);
    free(all.scores);
    return done;
}
