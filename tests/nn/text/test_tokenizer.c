/* The public tokenizer: what calls return and write, places of tokens, streams, threads. The tokenizer of most tests is
 * byte-level BPE with a few merges. */
#include "nn/text/tokenizers.h"

#include <pthread.h>

/* The characters of all bytes as a vocabulary: ids 0 to 255 in the order of bytes. */
static char *byte_vocabulary(char *out)
{
    char *at = out;
    int extra = 0;
    for (int b = 0; b < 256; b++) {
        bool plain = (b > ' ' && b < 0x7f) || (b > 0xa0 && b != 0xad);
        at += sprintf(at, "%s\"\\u%04x\": %d", b ? ", " : "", (unsigned)(plain ? b : 256 + extra), b);
        if (!plain) extra++;
    }
    return out;
}

static const char *bpe_json(void)
{
    static char text[8000], vocabulary[6000];
    snprintf(
        text, sizeof text,
        "{\"added_tokens\": [{\"id\": 260, \"content\": \"<end>\", \"special\": true, \"normalized\": false},"
        " {\"id\": 261, \"content\": \"[x]\", \"special\": false, \"lstrip\": true, \"normalized\": false}],"
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false},"
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", "
        "\"type_id\": 0}},"
        " {\"SpecialToken\": {\"id\": \"<end>\", \"type_id\": 0}}],"
        " \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"<end>\", "
        "\"type_id\": 0}},"
        " {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],"
        " \"special_tokens\": {\"<end>\": {\"id\": \"<end>\", \"ids\": [260], \"tokens\": [\"<end>\"]}}},"
        "\"decoder\": {\"type\": \"ByteLevel\"},"
        "\"model\": {\"type\": \"BPE\", \"vocab\": {%s, \"th\": 256, \"the\": 257, \"\\u0120the\": 258, \"aa\": 259},"
        " \"merges\": [\"t h\", \"th e\", \"\\u0120 the\", [\"a\", \"a\"]]}}",
        byte_vocabulary(vocabulary));
    return text;
}

static mha_tokenizer *open_bpe(void)
{
    mha_tokenizer *t = open_as("tokenizer.json", bpe_json());
    if (!t) {
        printf("    %s\n", mha_context_error(ctx));
        exit(1);
    }
    return t;
}

TEST(ids_and_pieces)
{
    mha_tokenizer *t = open_bpe();
    size_t length = 0;
    mha_tokenizer_info about = {.size = sizeof about};
    expect_text(ids_of(t, "the the aaa"), "257 258 32 259 97 260");
    expect_text(pieces_of(t, "the the"), "[the][\xc4\xa0the][<end>]");
    expect_text(ids_of(t, ""), "260");
    expect_text(ids_of(t, "a [x]b<end>c"), "97 261 98 260 99 260");
    expect_text(mha_tokenizer_piece(t, 258, &length), "\xc4\xa0the");
    expect(length == 5, "length %zu", length);
    expect(!mha_tokenizer_piece(t, 262, NULL) && !mha_tokenizer_piece(t, -1, NULL), "a piece that is not there");
    expect(mha_tokenizer_id(t, "the") == 257 && mha_tokenizer_id(t, "<end>") == 260 && mha_tokenizer_id(t, "no") == -1,
           "ids");
    expect(mha_tokenizer_is_special(t, 260) && !mha_tokenizer_is_special(t, 261) && !mha_tokenizer_is_special(t, 999),
           "special");
    expect(!mha_tokenizer_about(ctx, t, &about) && about.tokens == 262 && about.bos == -1, "%lld tokens",
           (long long)about.tokens);
    expect_text(about.kind, "BPE");
    mha_tokenizer_free(t);
    mha_tokenizer_free(NULL);
}

TEST(options_of_encoding)
{
    mha_tokenizer *t = open_bpe();
    mha_encode_options o = MHA_ENCODE_DEFAULTS, zero = {0};
    o.special = false;
    expect_text(ids_with(t, "a<end>", 6, &o), "97 260");
    o.literal = true;
    expect_text(ids_with(t, "<end>", 5, &o), "60 101 110 100 62");
    expect_text(ids_with(t, "a\0b", 3, &o), "97 0 98");
    expect_text(ids_with(t, "a", 1, &zero), "options: their size is 0; start from MHA_ENCODE_DEFAULTS");
    mha_tokenizer_free(t);
}

TEST(capacity)
{
    mha_tokenizer *t = open_bpe();
    int32_t ids[4] = {-7, -7, -7, -7};
    int64_t count = 0;
    expect(!mha_tokenizer_encode(ctx, t, NULL, 0, &count, "the a", 5, NULL) && count == 4, "count %lld",
           (long long)count);
    count = 0;
    expect(mha_tokenizer_encode(ctx, t, ids, 3, &count, "the a", 5, NULL) == MHA_FULL && count == 4, "too small");
    expect(ids[0] == -7, "nothing is written if it does not fit");
    expect(!mha_tokenizer_encode(ctx, t, ids, 4, &count, "the a", 5, NULL) && ids[3] == 260, "it fits");
    expect(mha_tokenizer_encode(ctx, t, ids, -1, &count, "a", 1, NULL) == MHA_BAD_ARGUMENT, "negative");
    expect(mha_tokenizer_encode(ctx, t, NULL, 4, &count, "a", 1, NULL) == MHA_BAD_ARGUMENT, "NULL");
    expect(mha_tokenizer_encode(ctx, t, ids, 4, &count, NULL, 1, NULL) == MHA_BAD_ARGUMENT, "no text");
    expect(mha_tokenizer_encode(ctx, t, ids, 4, &count, "a", (size_t)2 << 30, NULL) == MHA_TOO_LARGE, "too long");
    mha_tokenizer_free(t);
}

TEST(text_that_is_not_utf8)
{
    static const struct {
        const char *text;
        int at;
    } cases[] = {{"\xff", 0},     {"ab\xc3", 2},           {"a\xed\xa0\x80", 1}, {"abc\xf0\x9f\x98", 3},
                 {"\xc0\x80", 0}, {"x\xf5\x80\x80\x80", 1}};
    mha_tokenizer *t = open_bpe();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[60];
        snprintf(want, sizeof want, "text: is not UTF-8 at byte %d", cases[i].at);
        expect_text(ids_of(t, cases[i].text), want);
    }
    mha_tokenizer_free(t);
}

TEST(places_and_pairs)
{
    mha_tokenizer *t = open_bpe();
    mha_encoding *e = NULL;
    const char text[] = "the \xe4\xb8\xad  [x]";
    expect(!mha_encoding_make(ctx, &e, t, text, sizeof text - 1, "aa", 2, NULL), "%s", mha_context_error(ctx));
    static const int want[][5] = {{257, 0, 3, 0, 0},  {32, 3, 4, 0, 0},   {0xe4, 4, 7, 0, 0}, {0xb8, 4, 7, 0, 0},
                                  {0xad, 4, 7, 0, 0}, {261, 7, 12, 0, 0}, {260, 0, 0, -1, 0}, {259, 0, 2, 1, 1}};
    expect(mha_encoding_count(e) == 8, "%lld tokens", (long long)mha_encoding_count(e));
    for (int i = 0; i < 8; i++) {
        mha_token k = mha_encoding_get(e, i);
        expect(k.id == want[i][0] && k.start == want[i][1] && k.end == want[i][2] && k.text == want[i][3] &&
                   k.type == want[i][4],
               "token %d is %d at %d..%d of text %d, type %d", i, k.id, (int)k.start, (int)k.end, k.text, k.type);
    }
    expect(mha_encoding_get(e, 6).special && !mha_encoding_get(e, 5).special, "special tokens");
    expect(mha_encoding_get(e, 8).piece == NULL && mha_encoding_get(e, -1).piece == NULL, "no such token");
    mha_encoding_free(e);
    expect(mha_encoding_make(ctx, &e, t, "a", 1, "\xff", 1, NULL) == MHA_BAD_ARGUMENT && !e, "the pair is checked");
    mha_tokenizer_free(t);
}

TEST(decoding)
{
    mha_tokenizer *t = open_bpe();
    char text[20] = "????????????????";
    size_t length = 0;
    int32_t ids[] = {257, 258, 260, 0xe4, 0xb8, 0xad, 0xe4, 5000, -1};
    expect(!mha_tokenizer_decode(ctx, t, NULL, 0, &length, ids, 3, false) && length == 7, "length %zu", length);
    expect(mha_tokenizer_decode(ctx, t, text, 7, &length, ids, 3, false) == MHA_FULL && *text == '?',
           "no room for the NUL");
    expect(!mha_tokenizer_decode(ctx, t, text, 20, &length, ids, 3, false), "%s", mha_context_error(ctx));
    expect_text(text, "the the");
    expect(!mha_tokenizer_decode(ctx, t, text, 20, &length, ids, 3, true), "%s", mha_context_error(ctx));
    expect_text(text, "the the<end>");
    expect(!mha_tokenizer_decode(ctx, t, text, 20, &length, ids + 3, 6, false), "%s", mha_context_error(ctx));
    expect_text(text, "\xe4\xb8\xad\xef\xbf\xbd");
    mha_tokenizer_free(t);
}

/* Streams give whole characters, and together what decoding gives at once. */
/* A word has the space that the first token of a text would lose; what is no text alone is its piece. */
TEST(words_of_tokens)
{
    static const struct {
        int32_t id;
        const char *word;
    } cases[] = {{257, "the"}, {258, " the"}, {32, " "}, {260, "<end>"}, {261, "[x]"}, {0xe4, "\xc3\xa4"}, {999, ""}};
    mha_tokenizer *t = open_bpe();
    char word[16];
    size_t length = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect(!mha_tokenizer_word(ctx, t, word, sizeof word, &length, cases[i].id), "%s", mha_context_error(ctx));
        expect_text(word, cases[i].word);
        expect(length == strlen(cases[i].word), "length %zu of \"%s\"", length, word);
    }
    expect(!mha_tokenizer_word(ctx, t, NULL, 0, &length, 258) && length == 4, "length %zu", length);
    expect(mha_tokenizer_word(ctx, t, word, 4, &length, 258) == MHA_FULL && length == 4, "it does not fit");
    expect(mha_tokenizer_word(ctx, NULL, word, 4, &length, 258) == MHA_BAD_ARGUMENT, "no tokenizer");
    mha_tokenizer_free(t);
    t = open_as("tokenizer.json",
                "{\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\"}, \"model\": "
                "{\"type\": \"WordLevel\", \"vocab\": {\"\u2581a\": 0, \"b\": 1}, \"unk_token\": \"b\"}}");
    expect(t && !mha_tokenizer_word(ctx, t, word, sizeof word, &length, 0), "%s", mha_context_error(ctx));
    expect_text(word, " a");
    mha_tokenizer_free(t);
}

TEST(streams)
{
    mha_tokenizer *t = open_bpe();
    const char *given = "the \xf0\x9f\x98\x80 \xe4\xb8\xad the\xc3\xa9";
    int32_t ids[60];
    int64_t count = 0;
    char all[200] = "", whole[200];
    const char *text;
    size_t length, total = 0;
    mha_text_stream *s = NULL;
    expect(!mha_tokenizer_encode(ctx, t, ids, 60, &count, given, strlen(given), NULL), "%s", mha_context_error(ctx));
    expect(!mha_text_stream_create(ctx, &s, t, false), "%s", mha_context_error(ctx));
    for (int round = 0; round < 2; round++) {
        total = 0;
        for (int64_t i = 0; i < count; i++) {
            expect(!mha_text_stream_push(ctx, s, ids[i], &text, &length), "%s", mha_context_error(ctx));
            expect(text[length] == 0 && !strstr(text, "\xef\xbf\xbd"), "token %d gave \"%s\"", (int)i, text);
            memcpy(all + total, text, length + 1);
            total += length;
        }
        expect(!mha_text_stream_end(ctx, s, &text, &length) && !length, "something was held back");
        expect_text(all, given);
    }
    int32_t broken[] = {0xe4, 0xb8, 'a', 0xf0, 0x9f};
    total = 0;
    for (int i = 0; i < 5; i++) {
        mha_text_stream_push(ctx, s, broken[i], &text, &length);
        memcpy(all + total, text, length + 1);
        total += length;
    }
    mha_text_stream_end(ctx, s, &text, &length);
    memcpy(all + total, text, length + 1);
    mha_tokenizer_decode(ctx, t, whole, sizeof whole, &length, broken, 5, false);
    expect_text(all, whole);
    mha_text_stream_free(s);
    mha_text_stream_free(NULL);
    mha_tokenizer_free(t);
}

/* A million letters: quadratic time would take hours. */
TEST(a_long_word)
{
    enum { N = 1 << 20 };
    mha_tokenizer *t = open_bpe();
    char *text = malloc(N);
    int64_t count = 0;
    memset(text, 'a', N);
    expect(!mha_tokenizer_encode(ctx, t, NULL, 0, &count, text, N, NULL) && count == N / 2 + 1, "%lld",
           (long long)count);
    memset(text, ' ', N);
    expect(!mha_tokenizer_encode(ctx, t, NULL, 0, &count, text, N, NULL) && count == N + 1, "%lld", (long long)count);
    for (int i = 0; i < N; i++) text[i] = "the "[i % 4];
    expect(!mha_tokenizer_encode(ctx, t, NULL, 0, &count, text, N, NULL) && count == N / 4 + 2, "%lld",
           (long long)count);
    free(text);
    mha_tokenizer_free(t);
}

/* A long word that is merged at once equals its cut parts: "aa" and "the" do not touch inside any piece. */
TEST(long_words_are_cut_without_a_trace)
{
    mha_tokenizer *t = open_bpe();
    char text[200] = "", want[700] = "";
    for (int i = 0; i < 25; i++) {
        strcat(text, i % 3 ? "theaa" : "aathh");
        strcat(want, i % 3 ? "257 259 " : "259 256 104 ");
    }
    strcat(want, "260");
    expect_text(ids_of(t, text), want);
    mha_tokenizer_free(t);
}

static mha_tokenizer *shared;

static void *encode_much(void *wrong)
{
    mha_context *own = NULL;
    int *failures = wrong;
    if (mha_context_create(&own, NULL)) return NULL;
    for (int i = 0; i < 300; i++) {
        char text[64];
        int32_t ids[64];
        int64_t count = 0;
        int n = snprintf(text, sizeof text, "the %d aa%.*s", i, i % 20, "aaaaaaaaaaaaaaaaaaaaaaaa");
        if (mha_tokenizer_encode(own, shared, ids, 64, &count, text, (size_t)n, NULL) || ids[0] != 257 || ids[1] != 32)
            ++*failures;
    }
    mha_context_free(own);
    return NULL;
}

TEST(several_threads)
{
    pthread_t threads[4];
    int failures[4] = {0};
    shared = open_bpe();
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, encode_much, &failures[i]);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        expect(!failures[i], "thread %d: %d failures", i, failures[i]);
    }
    mha_tokenizer_free(shared);
}

/* A trained tokenizer gives every text back, and merges what is frequent: of "ab" and "cd", equally frequent, "ab" first. */
TEST(training)
{
    if (!COMPLETE) return;
    mha_tokenizer_train_options o = MHA_TOKENIZER_TRAIN_DEFAULTS;
    mha_tokenizer *t = NULL;
    const char *path = in_folder("trained.json"), text[] = "ab cd ab cd abab\nxyz \xc3\xa9\xc3\xa9 ab cd";
    int64_t made = 0;
    int32_t ids[100];
    int64_t count;
    char back[100];
    size_t length;
    o.tokens = 259;
    expect(!mha_tokenizer_train(ctx, path, text, sizeof text - 1, &o, &made) && made == 259, "%lld: %s",
           (long long)made, mha_context_error(ctx));
    expect(!mha_tokenizer_open(ctx, &t, path, NULL), "%s", mha_context_error(ctx));
    expect(mha_tokenizer_id(t, "ab") == 257 && mha_tokenizer_id(t, "cd") == 258, "%d %d", mha_tokenizer_id(t, "ab"),
           mha_tokenizer_id(t, "cd"));
    expect(!mha_tokenizer_encode(ctx, t, ids, 100, &count, text, sizeof text - 1, NULL), "%s", mha_context_error(ctx));
    expect(!mha_tokenizer_decode(ctx, t, back, 100, &length, ids, count, true), "%s", mha_context_error(ctx));
    expect_text(back, text);
    mha_tokenizer_free(t);
    o.tokens = 256;
    expect(mha_tokenizer_train(ctx, path, text, 5, &o, NULL) == MHA_BAD_ARGUMENT, "too few tokens");
    o.tokens = 300;
    expect(mha_tokenizer_train(ctx, path, "\xff", 1, &o, NULL) == MHA_BAD_ARGUMENT, "not UTF-8");
    expect(mha_tokenizer_train(ctx, in_folder("no/such"), text, 5, &o, NULL) == MHA_BAD_FILE, "no such folder");
}
