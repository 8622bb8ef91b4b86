/* Tokenizers in other files than tokenizer.json, and files that are refused: every refusal says what is wrong. */
#include "nn/text/messages.h"
#include "nn/text/tokenizers.h"

/* ---- SentencePiece: messages written by hand --------------------------------------------------------------------------- */

#define SPACE "\xe2\x96\x81"

/* A model of that type (1: unigram, 2: BPE). */
static message model_of(unsigned type, bool fallback)
{
    message m = {.size = 0}, trainer = {.size = 0}, normalizer = {.size = 0};
    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "<s>", 0, 3);
    put_piece(&m, "</s>", 0, 3);
    put_piece(&m, "<T>", 0, 4);
    put_piece(&m, SPACE, -3, 1);
    put_piece(&m, "a", -3.5F, 1);
    put_piece(&m, "b", -4, 1);
    put_piece(&m, "ab", -1, 1);
    put_piece(&m, SPACE "ab", -2, 1);
    for (unsigned b = 0; fallback && b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        put_piece(&m, name, 0, 6);
    }
    put_field(&trainer, 3, type);
    put_field(&trainer, 35, fallback);
    put_bytes(&m, 2, trainer.bytes, trainer.size);
    put_bytes(&m, 3, normalizer.bytes, normalizer.size);
    return m;
}

static mha_tokenizer *open_message(const message *m)
{
    mha_tokenizer *t = NULL;
    mha_tokenizer_open(ctx, &t, write_bytes("tokenizer.model", m->bytes, m->size), NULL);
    return t;
}

TEST(sentencepiece)
{
    for (unsigned type = 1; type <= 2; type++) {
        message m = model_of(type, false);
        mha_tokenizer *t = open_message(&m);
        mha_tokenizer_info about = {.size = sizeof about};
        char text[50];
        size_t length;
        if (!expect(t != NULL, "%s", mha_context_error(ctx))) continue;
        expect_text(pieces_of(t, "  ab  abab "), "[" SPACE "ab][" SPACE "ab][ab]");
        expect_text(ids_of(t, "ab<T>b"), "8 3 6");
        expect_text(ids_of(t, "a</s>"), "4 5 2");           /* spelled out */
        expect_text(pieces_of(t, "zz"), "[" SPACE "][zz]"); /* unknown characters join */
        expect_text(ids_of(t, "zz"), "4 0");
        expect_text(ids_of(t, "   "), "");
        expect(!mha_tokenizer_decode(ctx, t, text, sizeof text, &length, (int32_t[]){1, 8, 0, 8, 2}, 5, false), "%s",
               mha_context_error(ctx));
        expect_text(text, "ab \xe2\x81\x87  ab");
        expect(!mha_tokenizer_about(ctx, t, &about) && about.unk == 0 && about.bos == 1 && about.eos == 2,
               "special ids");
        expect_text(about.format, "SentencePiece");
        mha_tokenizer_free(t);
        m = model_of(type, true);
        t = open_message(&m);
        if (!expect(t != NULL, "%s", mha_context_error(ctx))) continue;
        expect_text(ids_of(t, "z\xc3\xa9"), "4 131 204 178");
        expect(!mha_tokenizer_decode(ctx, t, text, sizeof text, &length, (int32_t[]){4, 204, 178, 204}, 4, false), "%s",
               mha_context_error(ctx));
        expect_text(text, "\xc3\xa9\xef\xbf\xbd");
        mha_tokenizer_free(t);
    }
}

/* A user-defined piece counts -0.1 in the sum of scores, not the largest score times its length: [ab][c] has -3.1, and [a][bc],
 * with the largest score there is, -4.5. */
TEST(user_defined_pieces_of_unigram)
{
    message m = {.size = 0}, trainer = {.size = 0};
    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, SPACE, -3, 1);
    put_piece(&m, "a", -3.5F, 1);
    put_piece(&m, "bc", -1, 1);
    put_piece(&m, "c", -3, 1);
    put_piece(&m, "ab", 0, 4);
    put_field(&trainer, 3, 1);
    put_bytes(&m, 2, trainer.bytes, trainer.size);
    mha_tokenizer *t = open_message(&m);
    if (!expect(t != NULL, "%s", mha_context_error(ctx))) return;
    expect_text(pieces_of(t, "abc abbc"), "[" SPACE "][ab][c][" SPACE "][ab][bc]");
    expect_text(ids_of(t, "abc"), "1 5 4");
    mha_tokenizer_free(t);
}

TEST(sentencepiece_that_is_damaged)
{
    message good = model_of(1, false), bad = good;
    for (size_t size = 0; size < good.size; size++) { /* no prefix crashes */
        bad.size = size;
        mha_tokenizer_free(open_message(&bad));
    }
    bad = (message){.size = 0};
    put_bytes(&bad, 1, "\xff\xff", 2);
    expect(!open_message(&bad) && strstr(mha_context_error(ctx), "damaged"), "%s", mha_context_error(ctx));
    bad = model_of(3, false);
    expect(!open_message(&bad) && strstr(mha_context_error(ctx), "model type is 3"), "%s", mha_context_error(ctx));
    bad = good;
    put_piece(&bad, "a", 0, 1);
    expect(!open_message(&bad) && strstr(mha_context_error(ctx), "twice"), "%s", mha_context_error(ctx));
    bad = good;
    put_bytes(&bad, 3, "\x12\x05\x08\0\0\0x", 7);
    expect(!open_message(&bad) && strstr(mha_context_error(ctx), "table of characters"), "%s", mha_context_error(ctx));
    remove(in_folder("tokenizer.model"));
}

/* Marian's files: a model for each side, and ids of their own in vocab.json. */
TEST(other_ids_beside_a_model)
{
    message m = model_of(1, false);
    mha_tokenizer *t = NULL;
    const char *vocab = "{\"</s>\": 0, \"<unk>\": 1, \"" SPACE "ab\": 2, \"ab\": 3, \">>fra<<\": 4, \"<pad>\": 5}";
    const char *config = "{\"tokenizer_class\": \"MarianTokenizer\", \"eos_token\": \"</s>\", \"unk_token\": "
                         "\"<unk>\", \"pad_token\": {\"content\": \"<pad>\"}}";
    mha_tokenizer_info about = {.size = sizeof about};
    write_bytes("source.spm", m.bytes, m.size);
    write_bytes("vocab.json", vocab, strlen(vocab));
    write_bytes("tokenizer_config.json", config, strlen(config));
    remove(in_folder("tokenizer.json"));
    expect(!mha_tokenizer_open(ctx, &t, tokenizer_folder, NULL), "%s", mha_context_error(ctx));
    expect_text(ids_of(t, ">>fra<< ab a"), "4 2 1 1 0");
    expect(!mha_tokenizer_about(ctx, t, &about) && about.pad == 5 && about.eos == 0 && about.unk == 1 &&
               about.tokens == 6,
           "special ids");
    mha_tokenizer_free(t);
    config =
        "{\"tokenizer_class\": \"M2M100Tokenizer\", \"src_lang\": \"de\", \"eos_token\": \"</s>\"}"; /* languages follow the vocabulary */
    write_bytes("tokenizer_config.json", config, strlen(config));
    t = NULL;
    expect(!mha_tokenizer_open(ctx, &t, tokenizer_folder, NULL), "%s", mha_context_error(ctx));
    expect_text(ids_of(t, "ab"), "22 2 0");
    expect(mha_tokenizer_id(t, "__zu__") == 6 + 99 && mha_tokenizer_is_special(t, 22), "languages");
    mha_tokenizer_free(t);
    remove(in_folder("source.spm"));
    remove(in_folder("vocab.json"));
    remove(in_folder("tokenizer_config.json"));
}

/* ---- Vocabularies ------------------------------------------------------------------------------------------------------ */

TEST(vocab_txt)
{
    if (!COMPLETE) return;
    mha_tokenizer *t = open_as("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhe\n##llo\nHe\n,\n\xe4\xb8\xad\r\n"),
                  *cased = NULL;
    mha_tokenizer_options o = MHA_TOKENIZER_DEFAULTS;
    mha_tokenizer_info about = {.size = sizeof about};
    if (!expect(t != NULL, "%s", mha_context_error(ctx))) return;
    expect_text(ids_of(t, "H\xc3\xa9llo, x\xe4\xb8\xad [MASK]"), "2 5 6 8 1 9 4 3");
    expect(!mha_tokenizer_about(ctx, t, &about) && about.mask == 4 && about.cls == 2 && about.sep == 3 &&
               about.pad == 0 && about.unk == 1,
           "ids");
    mha_tokenizer_free(t);
    o.cased = true;
    expect(!mha_tokenizer_open(ctx, &cased, in_folder("vocab.txt"), &o), "%s", mha_context_error(ctx));
    expect_text(ids_of(cased, "Hello"), "2 7 6 3");
    mha_tokenizer_free(cased);
    remove(in_folder("vocab.txt"));
}

TEST(vocab_json_and_merges)
{
    if (!COMPLETE) return;
    const char *merges = "#version: 0.2\nt h\nth e\n\xc4\xa0 the\n";
    mha_tokenizer *t = open_as("vocab.json", "{\"t\": 0, \"h\": 1, \"e\": 2, \"\xc4\xa0\": 3, \"th\": 4, \"the\": 5, "
                                             "\"\xc4\xa0the\": 6, \"<|endoftext|>\": 7}");
    expect(!t && strstr(mha_context_error(ctx), "needs merges.txt beside it"), "%s", mha_context_error(ctx));
    mha_tokenizer_free(t);
    write_bytes("merges.txt", merges, strlen(merges));
    static const char *const paths[] = {"vocab.json", "merges.txt", ""};
    for (int i = 0; i < 3; i++) {
        t = NULL;
        remove(in_folder("tokenizer.json"));
        expect(!mha_tokenizer_open(ctx, &t, in_folder(paths[i]), NULL), "%s", mha_context_error(ctx));
        expect_text(ids_of(t, "the the<|endoftext|>"), "5 6 7");
        mha_tokenizer_free(t);
    }
    t = open_as("merges.txt", "t h\nt x\n");
    expect(!t && strstr(mha_context_error(ctx), "merge 1 has a piece that is not in the vocabulary"), "%s",
           mha_context_error(ctx));
    remove(in_folder("merges.txt"));
    remove(in_folder("vocab.json"));
}

TEST(llama2c)
{
    unsigned char bytes[8000];
    size_t size = 4;
    int32_t longest = 10;
    memcpy(bytes, &longest, 4);
    for (int id = 0; id < 264; id++) {
        static const char *const last[] = {" ", "a", "b", "ab", " ab"};
        static const float scores[] = {-1, -2, -3, -10, -5};
        char piece[12];
        snprintf(piece, sizeof piece, "<0x%02X>", (unsigned)(id - 3));
        const char *text = id == 0    ? "<unk>"
                           : id == 1  ? "\n<s>\n"
                           : id == 2  ? "\n</s>\n"
                           : id < 259 ? piece
                                      : last[id - 259];
        float score = id < 259 ? 0 : scores[id - 259];
        int32_t length = (int32_t)strlen(text);
        memcpy(bytes + size, &score, 4);
        memcpy(bytes + size + 4, &length, 4);
        memcpy(bytes + size + 8, text, (size_t)length);
        size += 8 + (size_t)length;
    }
    mha_tokenizer *t = NULL;
    char text[20];
    size_t length;
    expect(!mha_tokenizer_open(ctx, &t, write_bytes("tokenizer.bin", bytes, size), NULL), "%s", mha_context_error(ctx));
    expect_text(ids_of(t, "ab\xc3\xa9"), "1 263 198 172");
    expect_text(ids_of(t, "bab"), "1 259 261 262");
    expect(!mha_tokenizer_decode(ctx, t, text, sizeof text, &length, (int32_t[]){1, 263, 198, 172, 2}, 5, false), "%s",
           mha_context_error(ctx));
    expect_text(text, "ab\xc3\xa9");
    mha_tokenizer_free(t);
    for (size_t cut = 0; cut < size; cut += 7) {
        t = NULL;
        mha_tokenizer_open(ctx, &t, write_bytes("tokenizer.bin", bytes, cut), NULL);
        mha_tokenizer_free(t);
    }
    remove(in_folder("tokenizer.bin"));
}

TEST(characters)
{
    mha_tokenizer
        *t = open_as(
            "x.vocabulary.json",
            "{\"source\": [\"<blank>\", \"<s>\", \"</s>\", \"\xd9\x8a\", \"b\"], \"target\": [\"<blank>\", \"c\"]}"),
        *u = NULL;
    mha_tokenizer_options o = MHA_TOKENIZER_DEFAULTS;
    if (!expect(t != NULL, "%s", mha_context_error(ctx))) return;
    expect_text(ids_of(t, "b\xd9\x8a"
                          "b</s>"),
                "4 3 4 2");
    expect_text(ids_of(t, "c"), "the text has a word without tokens, and the tokenizer has no unknown token");
    mha_tokenizer_free(t);
    o.target = true;
    expect(!mha_tokenizer_open(ctx, &u, in_folder("x.vocabulary.json"), &o), "%s", mha_context_error(ctx));
    expect_text(ids_of(u, "c"), "1");
    mha_tokenizer_free(u);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------------- */

#define MODEL "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [[\"a\", \"b\"]]}"

TEST(files_that_are_refused)
{
    if (!COMPLETE) return;
    static const char *const cases[][2] = {
        {"", "the tokenizer must be an object"},
        {"{\"model\": ", "value expected"},
        {"[]", "the tokenizer must be an object"},
        {"{}", "the tokenizer lacks \"model\""},
        {"{" MODEL "} x", "unexpected text after the end"},
        {"{\"version\": \"2.0\", " MODEL "}", "its version is \"2.0\"; 1.0 is supported"},
        {"{\"extra\": 1, " MODEL "}", "the tokenizer has \"extra\", which is not supported"},
        {"{\"normalizer\": {\"type\": \"NFZ\"}, " MODEL "}", "the normalizer type \"NFZ\" is not supported"},
        {"{\"normalizer\": {\"type\": \"NFC\", \"x\": 1}, " MODEL "}",
         "normalizer NFC has \"x\", which is not supported"},
        {"{\"normalizer\": {}, " MODEL "}", "normalizer lacks \"type\""},
        {"{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Glob\": \"a\"}, \"content\": \"\"}, " MODEL "}",
         "has \"Glob\", which is not supported"},
        {"{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"!!\"}, " MODEL "}", "is not base64"},
        {"{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}, " MODEL "}",
         "its table of characters is damaged"},
        {"{\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}, " MODEL "}",
         "the pre-tokenizer type \"UnicodeScripts\" is not supported"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": "
         "\"Removed\"}, " MODEL "}",
         "regular expression is invalid"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": \"Kept\"}, " MODEL
         "}",
         "the behavior \"Kept\""},
        {"{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"ab\"}, " MODEL "}",
         "replacement of pre-tokenizer Metaspace must be one character"},
        {"{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}, " MODEL
         "}",
         "the prepend_scheme \"last\""},
        {"{\"post_processor\": {\"type\": \"Other\"}, " MODEL "}",
         "the post-processor type \"Other\" is not supported"},
        {"{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\", "
         "\"type_id\": 0}}], \"pair\": [], "
         "\"special_tokens\": {}}, " MODEL "}",
         "special_tokens of post-processor TemplateProcessing lack \"x\""},
        {"{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"B\", "
         "\"type_id\": 0}}], \"pair\": [], "
         "\"special_tokens\": {}}, " MODEL "}",
         "asks for a second text"},
        {"{\"decoder\": {\"type\": \"Other\"}, " MODEL "}", "the decoder type \"Other\" is not supported"},
        {"{\"model\": {\"type\": \"Other\"}}", "the model type \"Other\" is not supported"},
        {"{\"model\": {\"type\": \"BPE\", \"dropout\": 0.1, \"vocab\": {\"a\": 0}, \"merges\": []}}", "has a dropout"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}", "vocab is empty"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", "vocab has the id -1"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 99999999}, \"merges\": []}}", "vocab has the id 99999999"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"a\"]]}}",
         "merge 0 of model BPE has a piece that is not in the vocabulary"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}}",
         "merge 0 of model BPE must be two pieces"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", "model BPE lacks \"merges\""},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}}",
         "piece 0 of model Unigram must be a text and a score"},
        {"{\"model\": {\"type\": \"Unigram\", \"unk_id\": 5, \"vocab\": [[\"a\", 0]]}}",
         "\"unk_id\" of model Unigram must be a whole number from 0 to 0"},
        {"{\"added_tokens\": [{\"id\": 7, \"content\": \"x\"}], " MODEL "}",
         "the added token \"x\" has the id 7, but the vocabulary gives it 3"},
        {"{\"added_tokens\": [{\"id\": 3, \"content\": \"x\", \"color\": 1}], " MODEL "}",
         "an added token has \"color\", which is not supported"},
        {"{\"added_tokens\": {}, " MODEL "}", "added_tokens must be an array"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_tokenizer *t = open_as("tokenizer.json", cases[i][0]);
        const char *error = mha_context_error(ctx);
        expect(!t && strstr(error, cases[i][1]) && !strchr(error, '\n'), "%s: \"%s\", expected \"%s\"", cases[i][0],
               t ? "opened" : error, cases[i][1]);
        expect(t || strncmp(error, tokenizer_folder, strlen(tokenizer_folder)) == 0, "the line names the file: %s",
               error);
        mha_tokenizer_free(t);
    }
    mha_tokenizer *t = (mha_tokenizer *)&t;
    expect(mha_tokenizer_open(ctx, &t, in_folder("none.json"), NULL) == MHA_BAD_FILE && !t, "a file that is not there");
    expect(mha_tokenizer_open(ctx, &t, "/", NULL) == MHA_BAD_FILE &&
               strstr(mha_context_error(ctx), "has no file of a tokenizer"),
           "%s", mha_context_error(ctx));
    expect(mha_tokenizer_open(ctx, &t, write_bytes("x.safetensors", "x", 1), NULL) == MHA_BAD_FILE,
           "another kind of file");
    expect(mha_tokenizer_open(ctx, &t, NULL, NULL) == MHA_BAD_ARGUMENT, "no path");
}
