/* Vocabularies without the rest: vocab.json with merges.txt, vocab.txt, lists of characters, and the vocab.json that gives
 * the pieces of a SentencePiece model other ids. */
#include "text/files/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mha_status nn_load_parts(nn_load *l, const char *normalizer, const char *splitter, const char *decoder)
{
    nn_json n = nn_json_open(normalizer, normalizer ? strlen(normalizer) : 0);
    nn_json s = nn_json_open(splitter, splitter ? strlen(splitter) : 0), d = nn_json_open(decoder, strlen(decoder));
    TRY(nn_load_normalizer(l, normalizer ? &n : NULL, &l->t->normalizer));
    TRY(nn_load_splitter(l, splitter ? &s : NULL, &l->t->splitter));
    return nn_load_decoder(l, &d, &l->t->decoders);
}

/* Makes a piece of the vocabulary a special token with a role, if it is there. */
static mha_status add_special(nn_load *l, const char *piece, nn_special role)
{
    int32_t id = nn_vocabulary_find(&l->t->model.vocabulary, piece, strlen(piece));
    if (id < 0 || l->t->special[role] >= 0) return MHA_OK;
    l->t->special[role] = id;
    for (size_t i = 0; i < l->t->added.count; i++)
        if (l->t->added.tokens[i].id == id) return MHA_OK;
    nn_added_token *t = nn_added_add(&l->t->added, piece, strlen(piece), id);
    if (t) t->special = true;
    return t ? MHA_OK : nn_load_memory(l);
}

/* The special tokens that the config names. */
static mha_status config_specials(nn_load *l)
{
    for (int i = 0; i < NN_SPECIALS; i++)
        if (l->config.special[i]) TRY(add_special(l, l->config.special[i], (nn_special)i));
    return MHA_OK;
}

/* ---- vocab.json and merges.txt --------------------------------------------------------------------------------------- */

static mha_status merge_line(nn_load *l, const char *line, size_t size, uint32_t number)
{
    nn_word_model *m = &l->t->model;
    const char *space = memchr(line, ' ', size);
    char joined[1024];
    if (!space) return nn_error(&l->to, MHA_BAD_FILE, "merge %u must be two pieces", number);
    size_t left = (size_t)(space - line), right = size - left - 1;
    if (left + right > sizeof joined)
        return nn_error(&l->to, MHA_BAD_FILE, "merge %u is longer than %zu bytes", number, sizeof joined);
    memcpy(joined, line, left);
    memcpy(joined + left, space + 1, right);
    int32_t a = nn_vocabulary_find(&m->vocabulary, line, left),
            b = nn_vocabulary_find(&m->vocabulary, space + 1, right);
    int32_t id = nn_vocabulary_find(&m->vocabulary, joined, left + right);
    if (a < 0 || b < 0 || id < 0)
        return nn_error(&l->to, MHA_BAD_FILE, "merge %u has a piece that is not in the vocabulary", number);
    return nn_merges_add(&m->merges, a, b, number, id) ? nn_load_memory(l) : MHA_OK;
}

static mha_status read_merges(nn_load *l, const char *text, size_t size)
{
    uint32_t number = 0;
    while (size) {
        const char *end = memchr(text, '\n', size);
        size_t n = end ? (size_t)(end - text) : size, line = n && text[n - 1] == '\r' ? n - 1 : n;
        bool comment = number == 0 && line >= 8 && memcmp(text, "#version", 8) == 0;
        if (line && !comment) TRY(merge_line(l, text, line, number++));
        text += n + (end != NULL);
        size -= n + (end != NULL);
    }
    return MHA_OK;
}

/* Byte-level BPE from both texts. */
static mha_status byte_level(nn_load *l, const char *vocab, size_t vocab_size, const char *merges, size_t merges_size)
{
    nn_word_model *m = &l->t->model;
    nn_json j = nn_json_open(vocab, vocab_size);
    j.nul = true;
    TRY(nn_load_pieces(l, &m->vocabulary, &j, "the vocabulary"));
    TRY(read_merges(l, merges, merges_size));
    m->kind = "BPE";
    m->tokenize = nn_bpe_words;
    m->cached = true;
    l->t->format = "vocab.json";
    TRY(nn_load_bytes(l, &l->t->splitter, "its split into words", l->config.prefix_space == 1, true));
    TRY(nn_load_parts(l, NULL, NULL, "{\"type\": \"ByteLevel\"}"));
    TRY(config_specials(l));
    TRY(add_special(l, "<|endoftext|>", NN_EOS));
    TRY(add_special(l, "<|endoftext|>", NN_BOS));
    return nn_text_config_template(l, "GPT2Tokenizer");
}

/* Reads the first of some files beside this one. */
static mha_status companion(nn_load *l, const char *const *names, char **text, size_t *size)
{
    for (const char *const *name = names; *name; name++) {
        TRY(nn_load_beside(l, *name, text, size));
        if (*text) return MHA_OK;
    }
    return nn_error(&l->to, MHA_BAD_FILE, "needs %s beside it", names[0]);
}

mha_status nn_load_vocab_json(nn_load *l, const char *text, size_t size)
{
    static const char *const names[] = {"merges.txt", "vocab.bpe", NULL};
    size_t merges_size = 0;
    char *merges;
    TRY(companion(l, names, &merges, &merges_size));
    mha_status status = byte_level(l, text, size, merges, merges_size);
    free(merges);
    return status;
}

mha_status nn_load_merges(nn_load *l, const char *text, size_t size)
{
    static const char *const names[] = {"vocab.json", "encoder.json", NULL};
    size_t vocab_size = 0;
    char *vocab;
    TRY(companion(l, names, &vocab, &vocab_size));
    mha_status status = byte_level(l, vocab, vocab_size, text, size);
    free(vocab);
    return status;
}

/* ---- vocab.txt --------------------------------------------------------------------------------------------------------- */

static mha_status read_lines(nn_load *l, const char *text, size_t size)
{
    for (int64_t id = 0; size; id++) {
        const char *end = memchr(text, '\n', size);
        size_t n = end ? (size_t)(end - text) : size, line = n;
        while (line && (text[line - 1] == '\r' || text[line - 1] == ' ' || text[line - 1] == '\t')) line--;
        if (id >= NN_VOCABULARY_MOST)
            return nn_error(&l->to, MHA_BAD_FILE, "has more than %d lines", NN_VOCABULARY_MOST);
        if (nn_utf8_valid(text, line) != line)
            return nn_error(&l->to, MHA_BAD_FILE, "line %lld is not UTF-8", (long long)id + 1);
        if (nn_vocabulary_add(&l->t->model.vocabulary, text, line, id)) return nn_load_memory(l);
        text += n + (end != NULL);
        size -= n + (end != NULL);
    }
    return l->t->model.vocabulary.count ? MHA_OK : nn_error(&l->to, MHA_BAD_FILE, "is empty");
}

mha_status nn_load_vocab_txt(nn_load *l, const char *text, size_t size)
{
    static const struct {
        const char *piece;
        nn_special role;
    } usual[] = {{"[UNK]", NN_UNK}, {"[CLS]", NN_CLS}, {"[SEP]", NN_SEP}, {"[PAD]", NN_PAD}, {"[MASK]", NN_MASK}};
    char normalizer[200];
    nn_word_model *m = &l->t->model;
    const nn_text_config *c = &l->config;
    bool lower = c->lower >= 0 ? c->lower == 1 : !l->cased, accents = c->accents >= 0 ? c->accents == 1 : lower;
    m->kind = "WordPiece";
    m->tokenize = nn_wordpiece_words;
    m->cached = true;
    m->longest = 100;
    m->prefix = strdup("##");
    if (!m->prefix) return nn_load_memory(l);
    TRY(read_lines(l, text, size));
    TRY(config_specials(l));
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) TRY(add_special(l, usual[i].piece, usual[i].role));
    m->unknown = l->t->special[NN_UNK];
    l->t->format = "vocab.txt";
    snprintf(
        normalizer, sizeof normalizer,
        "{\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": %s, \"strip_accents\": %s, "
        "\"lowercase\": %s}",
        c->ideographs == 0 ? "false" : "true", accents ? "true" : "false", lower ? "true" : "false");
    TRY(nn_load_parts(l, normalizer, "{\"type\": \"BertPreTokenizer\"}",
                      "{\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}"));
    return nn_text_config_template(l, "BertTokenizer");
}

/* ---- Lists of characters ------------------------------------------------------------------------------------------- */

mha_status nn_load_characters(nn_load *l, const char *text, size_t size)
{
    static const struct {
        const char *piece;
        nn_special role;
    } usual[] = {{"<blank>", NN_PAD}, {"<pad>", NN_PAD}, {"<s>", NN_BOS}, {"</s>", NN_EOS}, {"<unk>", NN_UNK}};
    nn_json j = nn_json_open(text, size);
    nn_fields f;
    int64_t id = 0;
    const char *side = l->target ? "target" : "source";
    TRY(nn_fields_read(&f, &l->to, "the vocabulary", &j));
    TRY(nn_fields_only(&f, "source target"));
    TRY(nn_fields_need(&f, side));
    nn_json list = *nn_fields_find(&f, side);
    if (nn_json_peek(&list) != '[') return nn_error(&l->to, MHA_BAD_FILE, "%s must be an array", side);
    nn_json_enter(&list, '[');
    while (nn_json_more(&list, ']')) {
        size_t length = 0;
        char *piece = nn_json_peek(&list) == '"' ? nn_json_copy(&list, &length) : NULL;
        mha_status status = piece ? nn_vocabulary_add(&l->t->model.vocabulary, piece, length, id++) : MHA_OK;
        free(piece);
        if (status) return nn_load_memory(l);
        if (!piece) return nn_error(&l->to, MHA_BAD_FILE, "%s must be a list of characters", side);
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) TRY(add_special(l, usual[i].piece, usual[i].role));
    l->t->model.kind = "characters";
    l->t->model.tokenize = nn_wordlevel_words;
    l->t->model.unknown = l->t->special[NN_UNK];
    l->t->format = "list of characters";
    return nn_load_parts(l, NULL, "{\"type\": \"FixedLength\", \"length\": 1}", "{\"type\": \"Fuse\"}");
}

/* ---- Other ids ----------------------------------------------------------------------------------------------------- */

mha_status nn_load_renamed(nn_load *l, const char *text, size_t size)
{
    nn_tokenizer *t = l->t;
    nn_json j = nn_json_open(text, size);
    size_t count = t->model.vocabulary.id_count, kept = 0;
    TRY(nn_load_pieces(l, &t->names, &j, "vocab.json"));
    int32_t unknown = nn_vocabulary_find(&t->names, "<unk>", 5);
    t->renamed = malloc((count + 1) * sizeof *t->renamed);
    if (!t->renamed) return nn_load_memory(l);
    if (unknown < 0) return nn_error(&l->to, MHA_BAD_FILE, "vocab.json beside it has no <unk>");
    for (size_t i = 0; i < count; i++) {
        size_t length = 0;
        const char *piece = nn_vocabulary_piece(&t->model.vocabulary, (int64_t)i, &length);
        int32_t id = piece ? nn_vocabulary_find(&t->names, piece, length) : -1;
        t->renamed[i] = id >= 0 ? id : unknown;
    }
    for (size_t i = 0; i < t->added.count; i++) {
        nn_added_token a = t->added.tokens[i];
        a.id = nn_vocabulary_find(&t->names, a.content, a.content_size);
        if (a.id >= 0) t->added.tokens[kept++] = a;
        else {
            free(a.content);
            free(a.shown);
        }
    }
    t->added.count = kept;
    for (int i = 0; i < NN_SPECIALS; i++) {
        size_t length = 0;
        const char *piece = nn_vocabulary_piece(&t->model.vocabulary, t->special[i], &length);
        t->special[i] = piece ? nn_vocabulary_find(&t->names, piece, length) : -1;
    }
    for (size_t i = 0; i < t->names.count; i++) { /* Marian's languages, such as >>fra<< */
        const nn_piece *p = &t->names.pieces[i];
        const char *piece = t->names.bytes + p->at;
        if (p->length < 5 || memcmp(piece, ">>", 2) != 0 || memcmp(piece + p->length - 2, "<<", 2) != 0) continue;
        if (!nn_added_add(&t->added, piece, p->length, p->id)) return nn_load_memory(l);
    }
    return MHA_OK;
}
