/* Normalizers, pre-tokenizers, models and decoders of a tokenizer.json: what they make of texts. The answers are those of
 * the `tokenizers` library (0.23). */
#include "nn/text/tokenizers.h"

/* A tokenizer whose unknown words show what is left of the text: one Unigram piece, and its unknown token as text. */
static mha_tokenizer *open_steps(const char *normalizer, const char *splitter)
{
    static char json[3000];
    snprintf(json, sizeof json,
             "{\"normalizer\": %s, \"pre_tokenizer\": %s, \"model\": {\"type\": \"Unigram\", \"unk_id\": 0, "
             "\"vocab\": [[\"<unk>\", 0]]}}",
             normalizer, splitter);
    mha_tokenizer *t = open_as("tokenizer.json", json);
    expect(t || !COMPLETE, "%s", mha_context_error(ctx));
    return t;
}

static void check(const char *normalizer, const char *splitter, const char *text, const char *want)
{
    mha_tokenizer *t = open_steps(normalizer, splitter);
    if (t && !expect_text(pieces_of(t, text), want)) printf("    of %s, %s\n", normalizer, splitter);
    mha_tokenizer_free(t);
}

TEST(normalizers)
{
    static const char *const cases[][3] = {
        {"{\"type\": \"NFC\"}", "e\xcc\x81 \xe2\x84\xab", "[\xc3\xa9 \xc3\x85]"},
        {"{\"type\": \"NFD\"}", "\xc3\xa9\xed\x95\x9c", "[e\xcc\x81\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab]"},
        {"{\"type\": \"NFKC\"}", "\xef\xac\x81\xc2\xbd\xef\xbd\xb6\xef\xbe\x9e",
         "[fi1\xe2\x81\x84"
         "2\xe3\x82\xac]"},
        {"{\"type\": \"NFKD\"}", "\xe1\xba\x9b\xcc\xa3", "[s\xcc\xa3\xcc\x87]"},
        {"{\"type\": \"Lowercase\"}", "A\xc3\x89\xc4\xb0\xce\xa3", "[a\xc3\xa9i\xcc\x87\xcf\x83]"},
        {"{\"type\": \"StripAccents\"}", "e\xcc\x81\xc3\xa9", "[e\xc3\xa9]"},
        {"{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": false}",
         " \xc2\xa0"
         "a ",
         "[a ]"},
        {"{\"type\": \"Replace\", \"pattern\": {\"String\": \"ab\"}, \"content\": \"x\"}", "aabb", "[axb]"},
        {"{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, \"content\": \"_\"}", "a  b c   ", "[a_b c_]"},
        {"{\"type\": \"Prepend\", \"prepend\": \"zz\"}", "a", "[zza]"},
        {"{\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true, \"strip_accents\": "
         "null, \"lowercase\": true}",
         "\xc3\x89\t\xe4\xb8\xad\x07x", "[e  \xe4\xb8\xad x]"},
        {"{\"type\": \"Nmt\"}",
         "a\x01\xe2\x80\x8b"
         "b",
         "[a b]"},
        {"{\"type\": \"ByteLevel\"}", "a \xc3\xa9", "[a\xc4\xa0\xc3\x83\xc2\xa9]"},
        {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}, {\"type\": \"NFD\"}, {\"type\": "
         "\"StripAccents\"}]}",
         "\xc3\x89", "[e]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(cases[i][0], "null", cases[i][1], cases[i][2]);
}

TEST(splits)
{
    static const char *const cases[][3] = {
        {"\"String\": \"-\"}, \"behavior\": \"Removed\", \"invert\": false}", "the-final--countdown",
         "[the][final][countdown]"},
        {"\"String\": \"-\"}, \"behavior\": \"Isolated\", \"invert\": false}", "the-final--x",
         "[the][-][final][-][-][x]"},
        {"\"String\": \"-\"}, \"behavior\": \"MergedWithPrevious\", \"invert\": false}", "the-final--x",
         "[the-][final-][-][x]"},
        {"\"String\": \"-\"}, \"behavior\": \"MergedWithNext\", \"invert\": false}", "the-final--x",
         "[the][-final][-][-x]"},
        {"\"String\": \"-\"}, \"behavior\": \"Contiguous\", \"invert\": false}", "the-final--x",
         "[the][-][final][--][x]"},
        {"\"Regex\": \"\\\\b\"}, \"behavior\": \"MergedWithPrevious\", \"invert\": true}", "ab cd", "[ab][ ][cd]"},
        {"\"Regex\": \"[a-z]+\"}, \"behavior\": \"Removed\", \"invert\": true}", "ab1cd", "[ab][cd]"},
    };
    char splitter[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(splitter, sizeof splitter, "{\"type\": \"Split\", \"pattern\": {%s", cases[i][0]);
        check("null", splitter, cases[i][1], cases[i][2]);
    }
    check(
        "null",
        "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": \"always\", \"split\": true}",
        "a b",
        "[\xe2\x96\x81"
        "a][\xe2\x96\x81"
        "b]");
    check("null", "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"never\", \"split\": false}",
          "a b", "[a_b]");
    check("null", "{\"type\": \"BertPreTokenizer\"}",
          "a,b \xe3\x80\x82"
          "c",
          "[a][,][b][\xe3\x80\x82][c]");
    check("null", "{\"type\": \"Digits\", \"individual_digits\": true}", "a12", "[a][1][2]");
    check("null", "{\"type\": \"Digits\", \"individual_digits\": false}", "a12b", "[a][12][b]");
    check("null", "{\"type\": \"Punctuation\"}", "a.b", "[a][.][b]");
    check("null", "{\"type\": \"Whitespace\"}", "a-b \xc3\xa9_1", "[a][-][b][\xc3\xa9_1]");
    check("null", "{\"type\": \"WhitespaceSplit\"}",
          "a\xe3\x80\x80"
          "b",
          "[a][b]");
    check("null", "{\"type\": \"FixedLength\", \"length\": 2}", "abcde", "[ab][cd][e]");
    check("null", "{\"type\": \"CharDelimiterSplit\", \"delimiter\": \"b\"}", "abc", "[a][c]");
    check("null", "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}",
          "it's  a",
          "[\xc4\xa0it]['s][\xc4\xa0][\xc4\xa0"
          "a]");
    check("null",
          "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, {\"type\": \"Punctuation\"}]}",
          "a. b", "[a][.][b]");
}

/* Expressions are Oniguruma's; what PCRE2 writes or means otherwise. */
TEST(expressions)
{
    static const char *const cases[][3] = {
        {"[^(\\\\s|[.,!?])]+", "a(b|c.d", "[a][(][b][|][c][.][d]"}, /* a class inside a class */
        {"[a-z&&[^aeiou]]+", "abcde", "[a][bcd][e]"},
        {"\\\\w+", "-\xc2\xb2-", "[-][\xc2\xb2][-]"},
        {"[\\\\w]+",
         "-\xc2\xb2"
         "a",
         "[-\xc2\xb2][a]"},
        {"[^\\\\W\\\\d_]+", "a1_b", "[a][1_][b]"},
        {"\\\\w+", "x\xcc\x81y", "[x\xcc\x81y]"},
        {"\\\\s+",
         "a \xe1\xa0\x8e\xe3\x80\x80"
         "b",
         "[a][ ][\xe1\xa0\x8e][\xe3\x80\x80][b]"}, /* U+180E is no white space */
        {"[\\\\s]", "a\xe1\xa0\x8e", "[a\xe1\xa0\x8e]"},
        {"\\\\S+",
         " \xe1\xa0\x8e"
         "a ",
         "[ ][\xe1\xa0\x8e"
         "a][ ]"},
        {"[^\\\\S]+", "a \xe1\xa0\x8e", "[a][ ][\xe1\xa0\x8e]"},
        {"[[:space:]]", "\xe1\xa0\x8e", "[\xe1\xa0\x8e]"},
        {"\\\\h+", "xyzabc09", "[xyz][abc09]"},
        {"^a", "b\\na", "[b\n][a]"},
        {"(?m:.+)", "a\nb", "[a\nb]"},
        {".+", "a\nb", "[a][\n][b]"},
        {"a{,2}", "aaaa", "[aa][aa]"},
        {"\\\\p{Han}", "\xe4\xb8\xad\xe3\x80\x82", "[\xe4\xb8\xad][\xe3\x80\x82]"},
        {"[[:punct:]]+", "a$b", "[a][$][b]"},
        {"\\\\p{Letter}+", "a1", "[a][1]"},
        {"\\\\u4e2d", "a\xe4\xb8\xad", "[a][\xe4\xb8\xad]"},
        {"\\\\b", "ab cd", "[ab][ ][cd]"},
        {"x*", "axb", "[a][x][b]"},
        {"(?i:'S)", "a'\xc5\xbf", "[a]['\xc5\xbf]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char splitter[300], text[100];
        snprintf(
            splitter, sizeof splitter,
            "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": \"Isolated\", \"invert\": false}",
            cases[i][0]);
        snprintf(text, sizeof text, "%s", strcmp(cases[i][1], "b\\na") == 0 ? "b\na" : cases[i][1]);
        check("null", splitter, text, cases[i][2]);
    }
}

/* U+A7CE, a letter since Unicode 17 alone, is an unassigned character to older tables: left as it is, and no \w. */
TEST(characters_newer_than_the_tables)
{
    char tables[32] = "", expressions[32] = "";
    mha_tokenizer_unicode(tables, expressions);
    mha_tokenizer_unicode(NULL, NULL);
    for (int i = 0; i < 2; i++) { /* a build may lack the libraries */
        const char *version = i ? expressions : tables;
        expect(!*version || strtod(version, NULL) >= 12, "Unicode %s", version);
    }
    if (*expressions && strtod(expressions, NULL) < 17)
        check("null",
              "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\w+\"}, \"behavior\": \"Isolated\", \"invert\": "
              "false}",
              "a\xea\x9f\x8e"
              "b",
              "[a][\xea\x9f\x8e][b]");
    if (*tables && strtod(tables, NULL) < 17)
        check("{\"type\": \"Lowercase\"}", "null", "A\xea\x9f\x8e", "[a\xea\x9f\x8e]");
}

/* An expression that backtracks without end is stopped. */
TEST(match_limit)
{
    mha_tokenizer *t = open_steps("null", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a+)+\\\\d\"}, "
                                          "\"behavior\": \"Removed\", \"invert\": false}");
    char text[200];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 0;
    if (t) expect_text(ids_of(t, text), "the regular expression \"(a+)+\\\\d\" takes too many steps on this text");
    mha_tokenizer_free(t);
}

static void check_model(const char *model, const char *text, const char *want)
{
    char json[1000];
    snprintf(json, sizeof json, "{\"model\": %s}", model);
    mha_tokenizer *t = open_as("tokenizer.json", json);
    if (expect(t != NULL, "%s", mha_context_error(ctx)) && !expect_text(ids_of(t, text), want))
        printf("    of %s\n", model);
    mha_tokenizer_free(t);
}

TEST(models)
{
    const char *bpe = "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"<unk>\": 3, \"abab\": 4}, \"merges\": [[\"a\", "
                      "\"b\"], [\"ab\", \"ab\"]]}";
    char model[600];
    snprintf(model, sizeof model, "{\"type\": \"BPE\", \"unk_token\": \"<unk>\", %s", bpe);
    check_model(model, "ababzzab", "4 3 3 2");
    snprintf(model, sizeof model, "{\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, %s", bpe);
    check_model(model, "ababzzab", "4 3 2");
    snprintf(model, sizeof model, "{\"type\": \"BPE\", %s", bpe);
    check_model(model, "azb", "2"); /* without an unknown token, characters are dropped */
    snprintf(model, sizeof model, "{\"type\": \"BPE\", \"unk_token\": \"[U]\", %s", bpe);
    check_model(model, "z", "the text needs the unknown token, which is not in the vocabulary");
    check_model(
        "{\"type\": \"BPE\", \"ignore_merges\": true, \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": []}",
        "ab", "2");
    check_model("{\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"a\": 0, \"<0xC3>\": 1, \"<0xA9>\": 2}, "
                "\"merges\": []}",
                "a\xc3\xa9", "0 1 2");
    check_model("{\"type\": \"BPE\", \"continuing_subword_prefix\": \"##\", \"end_of_word_suffix\": \"</w>\", "
                "\"vocab\": {\"a\": 0, \"##b\": 1, "
                "\"##c</w>\": 2, \"ab\": 3}, \"merges\": [\"a ##b\"]}",
                "abc", "3 2");
    check_model("{\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], [\"a\", -1], [\"b\", -1], [\"ab\", "
                "-1.5], [\"abc\", -9]]}",
                "abcc", "4 0");
    check_model(
        "{\"type\": \"Unigram\", \"unk_id\": 0, \"byte_fallback\": true, \"vocab\": [[\"<unk>\", 0], [\"<0x7A>\", 0]]}",
        "z", "1");
    check_model("{\"type\": \"Unigram\", \"vocab\": [[\"a\", 0]]}", "z",
                "the text has a character without a token, and the tokenizer has no unknown token");
    check_model("{\"type\": \"WordPiece\", \"unk_token\": \"[U]\", \"continuing_subword_prefix\": \"##\", "
                "\"max_input_chars_per_word\": 5, "
                "\"vocab\": {\"[U]\": 0, \"un\": 1, \"##able\": 2, \"##a\": 3}}",
                "unaa", "1 3 3");
    check_model("{\"type\": \"WordPiece\", \"unk_token\": \"[U]\", \"continuing_subword_prefix\": \"##\", "
                "\"max_input_chars_per_word\": 5, "
                "\"vocab\": {\"[U]\": 0, \"un\": 1, \"##able\": 2, \"##a\": 3}}",
                "unable", "0");
    check_model("{\"type\": \"WordLevel\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0, \"ab\": 1}}", "ab", "1");
    check_model("{\"vocab\": {\"a\": 0}, \"merges\": []}", "a", "0"); /* older files have no type */
}

static void check_decoder(const char *decoder, const char *want)
{
    char json[1500], text[200];
    size_t length;
    static const int32_t ids[] = {0, 1, 2, 3, 4, 5, 6};
    snprintf(json, sizeof json,
             "{\"decoder\": %s, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"\", \"vocab\": "
             "{\"\xe2\x96\x81it\": 0, \"##s\": 1, "
             "\"<0xC3>\": 2, \"<0xA9>\": 3, \"<0xC3>\": 2, \"n't\": 4, \"\xc4\xa0"
             "a\": 5, \".\": 6}}}",
             decoder);
    mha_tokenizer *t = open_as("tokenizer.json", json);
    if (expect(t || !COMPLETE, "%s", mha_context_error(ctx)) && t) {
        expect(!mha_tokenizer_decode(ctx, t, text, sizeof text, &length, ids, 7, false), "%s", mha_context_error(ctx));
        if (!expect_text(text, want)) printf("    of %s\n", decoder);
    }
    mha_tokenizer_free(t);
}

TEST(decoders)
{
    check_decoder("null", "\xe2\x96\x81it ##s <0xC3> <0xA9> n't \xc4\xa0"
                          "a .");
    check_decoder("{\"type\": \"Fuse\"}", "\xe2\x96\x81it##s<0xC3><0xA9>n't\xc4\xa0"
                                          "a.");
    check_decoder("{\"type\": \"ByteFallback\"}", "\xe2\x96\x81it##s\xc3\xa9n't\xc4\xa0"
                                                  "a.");
    check_decoder("{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}",
                  "\xe2\x96\x81it##s<0xC3><0xA9>n't a.");
    check_decoder(
        "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": \"always\", \"split\": true}",
        "it##s<0xC3><0xA9>n't\xc4\xa0"
        "a.");
    check_decoder(
        "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": \"never\", \"split\": true}",
        " it##s<0xC3><0xA9>n't\xc4\xa0"
        "a.");
    check_decoder("{\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}",
                  "\xe2\x96\x81its <0xC3> <0xA9>n't \xc4\xa0"
                  "a.");
    check_decoder("{\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": false}",
                  "\xe2\x96\x81its <0xC3> <0xA9> n't \xc4\xa0"
                  "a .");
    check_decoder("{\"type\": \"BPEDecoder\", \"suffix\": \"t\"}", "\xe2\x96\x81i ##s<0xC3><0xA9>n' \xc4\xa0"
                                                                   "a.");
    check_decoder("{\"type\": \"Replace\", \"pattern\": {\"String\": \"##\"}, \"content\": \"\"}",
                  "\xe2\x96\x81its<0xC3><0xA9>n't\xc4\xa0"
                  "a.");
    check_decoder("{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": "
                  "\".\", \"start\": 0, \"stop\": 1}]}",
                  "\xe2\x96\x81it##s<0xC3><0xA9>n't\xc4\xa0"
                  "a");
}
