/* Files that were written to do harm: they are refused, or read and used in time and memory that grow with their size. */
#include "nn/text/messages.h"
#include "nn/text/tokenizers.h"
#include "text/vocabulary.h"
#include "text/word_model.h"

#include <dirent.h>
#include <time.h>

/* ---- SentencePiece's table of characters ------------------------------------------------------------------------------- */

/* A table with one key of one byte, whose text begins at a place of the texts. */
typedef struct table {
    unsigned char bytes[2000];
    size_t size;
} table;

static void put_unit(table *t, uint32_t unit)
{
    for (int i = 0; i < 4; i++) t->bytes[t->size++] = (unsigned char)(unit >> 8 * i);
}

static table table_of(unsigned char key, uint32_t place, const char *texts, size_t size)
{
    enum { LEAF = 1 << 8, OFFSET = 10 };
    table t = {.size = 0};
    uint32_t value = key ^ 1u, count = (key | 1u) + 1;
    put_unit(&t, 4 * count);
    for (uint32_t i = 0; i < count; i++)
        put_unit(&t, i == key ? (uint32_t)key | LEAF | 1 << OFFSET : i == value ? place | 1u << 31 : 0);
    memcpy(t.bytes + t.size, texts, size);
    t.size += size;
    return t;
}

/* The pieces of a text, or the error of opening, in either format. */
static const char *with_model(const table *t, const char *text)
{
    message m = {.size = 0}, normalizer = {.size = 0};
    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "x", -1, 1);
    put_piece(&m, "\xc3\xa9", -1, 1);
    put_bytes(&normalizer, 2, t->bytes, t->size);
    put_field(&normalizer, 3, 0);
    put_bytes(&m, 3, normalizer.bytes, normalizer.size);
    mha_tokenizer *made = NULL;
    mha_tokenizer_open(ctx, &made, write_bytes("table.model", m.bytes, m.size), NULL);
    const char *pieces = made ? pieces_of(made, text) : mha_context_error(ctx);
    mha_tokenizer_free(made);
    return pieces;
}

static const char *with_json(const table *t, const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char json[4000], base64[3000];
    size_t n = 0;
    for (size_t at = 0; at < t->size; at += 3) {
        uint32_t bits = 0;
        for (size_t i = 0; i < 3; i++) bits = bits << 8 | (at + i < t->size ? t->bytes[at + i] : 0);
        for (int i = 0; i < 4; i++)
            base64[n++] = (char)(at + (size_t)i <= t->size ? digits[bits >> (18 - 6 * i) & 63] : '=');
    }
    base64[n] = 0;
    snprintf(json, sizeof json,
             "{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"%s\"}, \"model\": {\"type\": "
             "\"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], [\"x\", -1], [\"\xc3\xa9\", -1]]}}",
             base64);
    mha_tokenizer *made = open_as("tokenizer.json", json);
    const char *pieces = made ? pieces_of(made, text) : mha_context_error(ctx);
    mha_tokenizer_free(made);
    return pieces;
}

TEST(texts_of_a_table_that_are_not_utf8)
{
    static const struct {
        uint32_t place;
        const char *texts;
        size_t size;
    } bad[] = {
        {0, "\xe2\0", 2},         {0, "\x80\0", 2},     {0, "x\0\xff\0", 4},
        {0, "\xed\xa0\x80\0", 4}, {1, "\xc3\xa9\0", 3}, {0, "\xf0\x9f\x98", 3}, /* ends inside a character */
        {4, "xx\0\xc3\xa9\0", 6},
    };
    static const char wrong[] = "its table of characters has texts that are not UTF-8";
    if (!COMPLETE) return;
    table good = table_of('b', 2, "y\0x\0", 4);
    expect_text(with_model(&good, "bbb"), "[x][x][x]");
    expect_text(with_json(&good, "bbb"), "[x][x][x]");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        table t = table_of('b', bad[i].place, bad[i].texts, bad[i].size);
        const char *model = with_model(&t, "bbbbbbbbba"), *json = with_json(&t, "bbbbbbbbba");
        expect(strstr(model, wrong) != NULL, "case %zu, model: %s", i, model);
        expect(strstr(json, wrong) != NULL, "case %zu, json: %s", i, json);
    }
}

/* A key that ends inside a character of the text is not found: what follows would be half a character. */
TEST(a_key_of_a_table_that_is_half_a_character)
{
    if (!COMPLETE) return;
    table t = table_of(0xc3, 0, "x\0", 2);
    expect_text(with_model(&t, "\xc3\xa9x\xc3\xa9"), "[\xc3\xa9][x][\xc3\xa9]");
}

TEST(the_text_of_an_unknown_token_that_is_not_utf8)
{
    message m = {.size = 0}, trainer = {.size = 0};
    mha_tokenizer *t = NULL;
    put_piece(&m, "<unk>", 0, 2);
    put_bytes(&trainer, 44, "\xe2", 1);
    put_bytes(&m, 2, trainer.bytes, trainer.size);
    expect(mha_tokenizer_open(ctx, &t, write_bytes("u.model", m.bytes, m.size), NULL) == MHA_BAD_FILE, "opened");
    mha_tokenizer_free(t);
}

/* ---- Decoders ---------------------------------------------------------------------------------------------------------- */

/* The text of two tokens by a decoder, or the error. */
static const char *decoded(const char *decoder)
{
    static char text[4000];
    char json[4000];
    size_t length = 0;
    snprintf(json, sizeof json,
             "{\"decoder\": %s, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0, "
             "\"a\\u0000xb\": 1, \"aaaaaaaaaaaaaaaaaaaaaaaaaaaa\": 2}}}",
             decoder);
    mha_tokenizer *t = open_as("tokenizer.json", json);
    if (!t || mha_tokenizer_decode(ctx, t, text, sizeof text, &length, (int32_t[]){1, 2}, 2, false))
        snprintf(text, sizeof text, "%s", mha_context_error(ctx));
    for (size_t i = 0; i < length; i++)
        if (!text[i]) text[i] = '0';
    mha_tokenizer_free(t);
    return text;
}

TEST(tokens_of_a_ctc_decoder_that_begin_with_nul)
{
    expect_text(decoded("{\"type\": \"CTC\", \"pad_token\": \"\\u0000x\", \"word_delimiter_token\": \"|\"}"),
                "abaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    expect_text(
        decoded("{\"type\": \"CTC\", \"pad_token\": \"|\", \"word_delimiter_token\": \"\\u0000x\", \"cleanup\": "
                "true}"),
        "a baaaaaaaaaaaaaaaaaaaaaaaaaaaa");
}

/* 40 of a component, in a Sequence. */
static const char *sequence(const char *field, const char *one)
{
    static char text[8000];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"type\": \"Sequence\", \"%s\": [", field);
    for (int i = 0; i < 40; i++) n += (size_t)snprintf(text + n, sizeof text - n, i ? ", %s" : "%s", one);
    snprintf(text + n, sizeof text - n, "]}");
    return text;
}

#define DOUBLE "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}"

TEST(steps_that_double_the_text)
{
    static char json[9000];
    snprintf(json, sizeof json,
             "{\"normalizer\": %s, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", "
             "\"vocab\": {\"u\": 0}}}",
             sequence("normalizers", DOUBLE));
    mha_tokenizer *t = open_as("tokenizer.json", json);
    if (expect(t != NULL, "%s", mha_context_error(ctx)))
        expect_text(ids_of(t, "a"), "the steps of the tokenizer make more than 65600 bytes of this text");
    mha_tokenizer_free(t);
    snprintf(json, sizeof json,
             "{\"decoder\": %s, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", \"vocab\": "
             "{\"u\": 0, \"a\": 1}}}",
             sequence("decoders", DOUBLE));
    t = open_as("tokenizer.json", json);
    size_t length = 0;
    mha_status status = t ? mha_tokenizer_decode(ctx, t, NULL, 0, &length, (int32_t[]){1}, 1, false) : MHA_OK;
    expect(status == MHA_BAD_ARGUMENT, "status %d", status);
    expect_text(mha_context_error(ctx), "the decoder makes more than 65600 bytes of these tokens");
    mha_tokenizer_free(t);
}

/* This used to be called a lack of memory. */
TEST(added_tokens_that_cannot_be_normalized)
{
    static char json[9000];
    mha_tokenizer *made = NULL;
    snprintf(
        json, sizeof json,
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"a\", \"normalized\": true}], \"normalizer\": %s, \"model\": "
        "{\"type\": \"WordLevel\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0}}}",
        sequence("normalizers", DOUBLE));
    mha_status status = mha_tokenizer_open(ctx, &made, write_bytes("tokenizer.json", json, strlen(json)), NULL);
    expect(status == MHA_BAD_FILE && !made, "%s", mha_status_name(status));
    expect(strstr(mha_context_error(ctx), "tokenizer.json: its added tokens cannot be normalized"), "said '%s'",
           mha_context_error(ctx));
}

/* ---- Regular expressions ----------------------------------------------------------------------------------------------- */

/* The steps of all searches in a text count, whichever way a search takes long, and the error names the expression. */
TEST(steps_of_regular_expressions)
{
    static const char *const slow[] = {
        "(?=a*b)",           /* every search reads to the end, without backtracking */
        "a*[bc]",            /* the same without a lookahead */
        "(?:a?){16}b|a",     /* 65,536 steps for every letter, and a match of one letter each time */
        "(a+)+c|a",          /* exponential */
        "\\\\G(?:a?){16}b|a" /* a search that must not be continued elsewhere */
    };
    enum { LENGTH = 100000 };
    if (!COMPLETE) return;
    char *text = malloc(LENGTH + 1), json[1000], want[200];
    if (!text) exit(1);
    memset(text, 'a', LENGTH);
    text[LENGTH] = 0;
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        snprintf(json, sizeof json,
                 "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": "
                 "\"Isolated\"}, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0}}}",
                 slow[i]);
        snprintf(want, sizeof want, "the regular expression \"%s\" takes too many steps on this text", slow[i]);
        mha_tokenizer *t = open_as("tokenizer.json", json);
        if (expect(t != NULL, "%s", mha_context_error(ctx))) expect_text(ids_of(t, text), want);
        mha_tokenizer_free(t);
    }
    free(text);
    expect_text(decoded("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(a+)+\\\\d\"}, \"content\": \"\"}"),
                "the regular expression \"(a+)+\\\\d\" takes too many steps on these tokens");
}

/* Matches that are longer than what a search reads at first, and matches far from each other, are found as they are. */
TEST(regular_expressions_on_long_words)
{
    static const char *const cases[][2] = {{"a+|b", "300"},    {"a+(?=b)", "300"}, {"a{299}(?!a)", "1 299"},
                                           {"(?<=a)b", "300"}, {"^a+|b$", "300"},  {"ab", "299"},
                                           {"a*?b", "301"},    {"b|\\\\s", "300"}};
    if (!COMPLETE) return;
    char text[302], json[1000], lengths[100];
    memset(text, 'a', sizeof text);
    text[300] = 'b', text[301] = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(json, sizeof json,
                 "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": "
                 "\"Isolated\"}, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0}}}",
                 cases[i][0]);
        mha_tokenizer *t = open_as("tokenizer.json", json);
        mha_encoding *e = NULL;
        if (!expect(t && !mha_encoding_make(ctx, &e, t, text, 301, NULL, 0, NULL), "%s", mha_context_error(ctx)))
            continue;
        lengths[0] = 0;
        for (int64_t k = 0, n = 0; k + 1 < mha_encoding_count(e) || (k == 0 && mha_encoding_count(e) == 1); k++) {
            mha_token token = mha_encoding_get(e, k);
            n += snprintf(lengths + n, sizeof lengths - (size_t)n, n ? " %d" : "%d", (int)(token.end - token.start));
        }
        if (!expect_text(lengths, cases[i][1])) printf("    of %s\n", cases[i][0]);
        mha_encoding_free(e);
        mha_tokenizer_free(t);
    }
}

TEST(an_expression_of_many_bytes)
{
    enum { LENGTH = 70000 };
    if (!COMPLETE) return;
    char *json = malloc(LENGTH + 500);
    if (!json) exit(1);
    int n = snprintf(json, 300, "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"");
    memset(json + n, 'a', LENGTH);
    snprintf(json + n + LENGTH, 300,
             "\"}, \"behavior\": \"Isolated\"}, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", \"vocab\": "
             "{\"u\": 0}}}");
    mha_tokenizer *t = open_as("tokenizer.json", json);
    expect(!t && strstr(mha_context_error(ctx), "its regular expression has more than 65536 bytes"), "%s",
           mha_context_error(ctx));
    mha_tokenizer_free(t);
    free(json);
}

/* ---- Templates --------------------------------------------------------------------------------------------------------- */

/* A template of `items` times the token x, which stands for `ids` tokens, or of as many texts, and the error of opening it. */
static const char *opened(int items, int ids, bool texts)
{
    static char json[1 << 17];
    const char *item = texts ? "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
                             : "{\"SpecialToken\": {\"id\": \"x\", \"type_id\": 0}}";
    size_t n = (size_t)sprintf(json, "{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [");
    for (int i = 0; i < items; i++) n += (size_t)sprintf(json + n, i ? ", %s" : "%s", item);
    n += (size_t)sprintf(json + n, "], \"pair\": [%s], \"special_tokens\": {\"x\": {\"id\": \"x\", \"ids\": [", item);
    for (int i = 0; i < ids; i++) n += (size_t)sprintf(json + n, i ? ", 0" : "0");
    n += (size_t)sprintf(json + n, "], \"tokens\": [");
    for (int i = 0; i < ids; i++) n += (size_t)sprintf(json + n, i ? ", \"u\"" : "\"u\"");
    sprintf(json + n, "]}}}, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0}}}");
    mha_tokenizer *t = open_as("tokenizer.json", json);
    mha_tokenizer_free(t);
    return t ? "" : mha_context_error(ctx);
}

TEST(templates_that_repeat_tokens_or_texts)
{
    expect_text(opened(32, 16, false), "");
    expect_text(opened(16, 0, true), "");
    const char *many = opened(1000, 1000, false);
    expect(strstr(many, "adds more than 1024 tokens to a text") != NULL, "%s", many);
    many = opened(17, 0, true);
    expect(strstr(many, "has more than 16 texts") != NULL, "%s", many);
}

/* ---- Keys that collide ------------------------------------------------------------------------------------------------- */

/* The number that times `a` is 1, modulo 2^64. */
static uint64_t inverse(uint64_t a)
{
    uint64_t x = a;
    for (int i = 0; i < 6; i++) x *= 2 - a * x;
    return x;
}

/* Pieces of 16 bytes whose quick hashes agree. */
static void collide(char piece[16], uint64_t number)
{
    const uint64_t factor = 0xff51afd7ed558ccdu, target = 0x1234567800000000u;
    uint64_t first = number * 0x9e3779b97f4a7c15u, h = ((0x9e3779b97f4a7c15u ^ 16) ^ first) * factor;
    h ^= h >> 32;
    uint64_t second = h ^ (target ^ target >> 32) * inverse(factor);
    memcpy(piece, &first, 8);
    memcpy(piece + 8, &second, 8);
}

TEST(pieces_with_the_same_hash)
{
    enum { COUNT = 20000 };
    nn_vocabulary v = {0};
    char piece[16], other[16];
    collide(piece, 1);
    collide(other, 2);
    expect(nn_hash(piece, 16) == nn_hash(other, 16), "the pieces of this test have different hashes");
    for (uint64_t i = 0; i < COUNT; i++) {
        collide(piece, i);
        if (!expect(!nn_vocabulary_add(&v, piece, 16, (int64_t)i), "piece %d", (int)i)) break;
    }
    expect(v.key.drawn, "the table still uses the quick hash");
    for (uint64_t i = 0; i < COUNT; i++) {
        collide(piece, i);
        if (!expect(nn_vocabulary_find(&v, piece, 16) == (int32_t)i, "piece %d is not found", (int)i)) break;
    }
    expect(nn_vocabulary_find(&v, "not there", 9) == -1, "a piece that is not there");
    nn_vocabulary_free(&v);
    for (int i = 0; i < COUNT; i++) /* ordinary pieces keep it */
        nn_vocabulary_add(&v, other, (size_t)snprintf(other, sizeof other, "piece %d", i), i);
    expect(!v.key.drawn && nn_vocabulary_find(&v, "piece 12345", 11) == 12345, "ordinary pieces");
    nn_vocabulary_free(&v);
}

TEST(merges_with_the_same_hash)
{
    enum { COUNT = 20000 };
    nn_merges m = {0};
    uint64_t factor = inverse(0x9e3779b97f4a7c15u);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t pair = ((uint64_t)i << 32 | (i ^ 77u)) * factor; /* whose hash is 77 */
        if (!expect(!nn_merges_add(&m, (int32_t)(uint32_t)(pair >> 32), (int32_t)(uint32_t)pair, i, (int32_t)i), "%u",
                    i))
            break;
    }
    expect(m.key.drawn, "the table still uses the quick hash");
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t pair = ((uint64_t)i << 32 | (i ^ 77u)) * factor;
        const nn_merge *found = nn_merges_find(&m, (int32_t)(uint32_t)(pair >> 32), (int32_t)(uint32_t)pair);
        if (!expect(found && found->id == (int32_t)i, "merge %u is not found", i)) break;
    }
    expect(!nn_merges_find(&m, 1, 2), "a merge that is not there");
    nn_merges_free(&m);
}

TEST(the_keyed_hash_depends_on_every_bit)
{
    nn_hash_key key = {true, {1, 2}}, other = {true, {1, 3}};
    unsigned char bytes[20] = {0};
    uint64_t zero = nn_keyed_hash(&key, bytes, sizeof bytes);
    expect(zero != nn_keyed_hash(&other, bytes, sizeof bytes), "the key does not count");
    expect(zero != nn_keyed_hash(&key, bytes, sizeof bytes - 1), "the length does not count");
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        expect(zero != nn_keyed_hash(&key, bytes, sizeof bytes), "bit %zu does not count", bit);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    expect(memcmp(nn_hash_key_draw().words, nn_hash_key_draw().words, sizeof key.words) != 0, "keys repeat");
}

/* ---- A folder of files ------------------------------------------------------------------------------------------------- */

/* Opens a file as a tokenizer and, if it is one, encodes long texts and decodes ids. */
static void use(const char *path)
{
    enum { LENGTH = 200000 };
    char *text = malloc(LENGTH);
    mha_tokenizer *t = NULL;
    int64_t count;
    size_t length;
    if (!text) exit(1);
    clock_t start = clock();
    mha_tokenizer_open(ctx, &t, path, NULL);
    for (int round = 0; t && round < 3; round++) {
        memset(text, round == 0 ? 'a' : 'b', LENGTH);
        text[LENGTH - 1] = 'a';
        size_t size = round == 2 ? 63 : LENGTH;
        mha_tokenizer_encode(ctx, t, NULL, 0, &count, text + LENGTH - size, size, NULL);
        mha_tokenizer_decode(ctx, t, NULL, 0, &length, (int32_t[]){1, 0}, 2, false);
    }
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    expect(seconds < 10, "%s took %.1f s", path, seconds);
    mha_tokenizer_free(t);
    free(text);
}

TEST(files_that_broke_a_reader)
{
    const char *folder = getenv("MHA_ATTACKS");
    DIR *files = folder ? opendir(folder) : NULL;
    char path[1000];
    if (!files) {
        not_given("MHA_ATTACKS names no folder of such files");
        return;
    }
    for (const struct dirent *file; (file = readdir(files));) {
        const char *ending = strrchr(file->d_name, '.');
        if (!ending || (strcmp(ending, ".json") != 0 && strcmp(ending, ".model") != 0)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
        use(path);
    }
    closedir(files);
}
