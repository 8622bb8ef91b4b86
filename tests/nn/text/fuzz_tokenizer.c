/* A fuzz target for the readers of tokenizer.json, of SentencePiece models and of llama2.c's tokenizers.
 *
 *     cmake -B build/fuzz -G Ninja -DMHA_FUZZ=ON -DCMAKE_C_COMPILER=clang
 *     cmake --build build/fuzz --target fuzz_tokenizer
 *     build/fuzz/tests/fuzz_tokenizer -max_total_time=60
 *
 * The first byte chooses the format, the rest is the file. It must either be refused with one line, or give a tokenizer that
 * encodes a few texts and decodes its ids.
 *
 * Without MHA_FUZZ the same file becomes a plain program for any compiler: it replays the files named on its command line,
 * or, without any, mutates the seeds with a generator of its own. That runs as an ordinary test. */
#include "text/files/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tokenizer.bin", "vocab.txt"};
enum { NAMES = sizeof names / sizeof *names };

#define FORM                                                                                                      \
    "\"added_tokens\": [{\"id\": 4, \"content\": \"<s>\", \"special\": true, \"normalized\": false, \"lstrip\": " \
    "true}, "                                                                                                     \
    "{\"id\": 5, \"content\": \"E\", \"normalized\": true, \"single_word\": true, \"rstrip\": true}], "
static const struct {
    char format;
    const char *text;
    size_t size;
} seeds[] = {
#define SEED(format, text)            \
    {                                 \
        format, text, sizeof text - 1 \
    }
    SEED(0,
         "{" FORM
         "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}, {\"type\": \"Lowercase\"}, "
         "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, \"content\": \" \"}]}, \"pre_tokenizer\": "
         "{\"type\": \"Sequence\", "
         "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"[^\\\\s[a-c]]+|\\\\w\"}, \"behavior\": "
         "\"Isolated\", \"invert\": false}, "
         "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": false}]}, "
         "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", "
         "\"type_id\": 0}}, "
         "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": "
         "0}}], \"special_tokens\": "
         "{\"<s>\": {\"id\": \"<s>\", \"ids\": [4], \"tokens\": [\"<s>\"]}}}, \"decoder\": {\"type\": \"ByteLevel\"}, "
         "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"u\", \"fuse_unk\": true, "
         "\"byte_fallback\": true, \"ignore_merges\": false, "
         "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"u\": 3}, \"merges\": [[\"a\", \"b\"]]}}"),
    SEED(0, "{" FORM "\"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": "
            "true, \"strip_accents\": null, "
            "\"lowercase\": true}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"post_processor\": {\"type\": "
            "\"BertProcessing\", \"sep\": [\"b\", 1], "
            "\"cls\": [\"a\", 0]}, \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}, "
            "\"model\": {\"type\": \"WordPiece\", "
            "\"unk_token\": \"[U]\", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100, "
            "\"vocab\": {\"a\": 0, \"b\": 1, \"##b\": 2, \"[U]\": 3}}}"),
    SEED(0, "{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAB4AA==\"}, "
            "\"pre_tokenizer\": {\"type\": \"Metaspace\", "
            "\"replacement\": \"_\", \"prepend_scheme\": \"first\", \"split\": true}, \"decoder\": {\"type\": "
            "\"Sequence\", \"decoders\": [{\"type\": "
            "\"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, "
            "\"stop\": 1}]}, \"model\": {\"type\": \"Unigram\", "
            "\"unk_id\": 0, \"byte_fallback\": true, \"vocab\": [[\"<unk>\", 0.0], [\"_\", -1.5], [\"a\", -2e0], "
            "[\"_ab\", -3]]}}"),
    SEED(1, "\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02\x0a\x08\x0a\x01"
            "a\x15\0\0\x80\xbf\x0a\x0a\x0a\x03\xe2\x96\x81\x15\0\0\0\xc0"
            "\x12\x05\x18\x02\x98\x02\x01\x1a\x04\x18\x01\x20\x01"),
    SEED(1, "\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02\x0a\x0a\x0a\x01"
            "a\x15\0\0\x80\xbf\x18\x04\x12\x02\x18\x01"
            "\x1a\x0e\x12\x0c\x04\0\0\0\0\x04\0\0x\0y\0"),
    SEED(2, "\x08\0\0\0\0\0\0\0\x05\0\0\0<unk>\0\0\0\0\x03\0\0\0<s>"),
    SEED(3, "[UNK]\n[CLS]\n[SEP]\na\n##b\n"),
};
enum { SEEDS = sizeof seeds / sizeof *seeds };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void use(nn_tokenizer *t)
{
    static const char *const texts[] = {"", "a", "ab  AB <s> E\xcc\x81 \xe4\xb8\xad\xf0\x9f\x98\x80",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab b"};
    int32_t ids[300];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        nn_flow *f = nn_tokenizer_borrow(t);
        if (f &&
            !nn_tokenizer_encode(t, f, texts[i], strlen(texts[i]), (i & 1 ? NN_ENCODE_LITERAL : 0) | NN_ENCODE_TRACK))
            for (size_t k = 0; k < f->token_count; k++) {
                size_t start, end;
                nn_tokenizer_range(t, f, k, &start, &end);
                if (end > strlen(texts[i])) abort();
            }
        nn_tokenizer_return(t, f);
    }
    int32_t count = (int32_t)(nn_tokenizer_size(t) < 300 ? nn_tokenizer_size(t) : 300);
    nn_decoding d = {0};
    for (int32_t i = 0; i < count; i++) ids[i] = i;
    nn_tokenizer_decode(t, &d, ids, (size_t)count, false);
    nn_decoding_free(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char error[300] = "";
    if (!size) return 0;
    /* Behind a NUL, so that a read beyond the end is found. */
    char *text = malloc(size);
    if (!text) return 0;
    memcpy(text, bytes + 1, size - 1);
    text[size - 1] = 0;
    nn_tokenizer *t;
    mha_status status =
        nn_tokenizer_read(&t, names[bytes[0] % NAMES], text, size - 1, (nn_open_options){0}, error, sizeof error);
    if (!status) use(t);
    else if (!*error || strchr(error, '\n')) {
        fprintf(stderr, "fuzz_tokenizer: refused without one line: %s\n", error);
        abort();
    }
    nn_tokenizer_free(t);
    free(text);
    return 0;
}

static size_t seed(uint8_t *out, size_t number)
{
    out[0] = (uint8_t)seeds[number % SEEDS].format;
    memcpy(out + 1, seeds[number % SEEDS].text, seeds[number % SEEDS].size);
    return seeds[number % SEEDS].size + 1;
}

#ifdef MHA_FUZZ

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t room, unsigned int number);

/* Starts from the seeds: no corpus is stored. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t room, unsigned int number)
{
    if (size < 4 && room > 4000) size = seed(bytes, number);
    return LLVMFuzzerMutate(bytes, size, room);
}

#else

static uint64_t state = 1;
static size_t random_below(size_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % n;
}

/* Changes a few bytes: to others of the file, to random ones, or a number of them away. */
static size_t shake(uint8_t *bytes, size_t size)
{
    for (size_t n = 1 + random_below(3); n; n--) {
        size_t at = random_below(size), from = random_below(size), length = random_below(8) + 1;
        switch (random_below(4)) {
        case 0:
            bytes[at] = (uint8_t)random_below(256);
            break;
        case 1:
            bytes[at] = bytes[from];
            break;
        case 2:
            if (at + length < size) {
                memmove(bytes + at, bytes + at + length, size - at - length);
                size -= length;
            }
            break;
        default:
            if (from + length < size && size + length < 6000) {
                memmove(bytes + at + length, bytes + at, size - at);
                size += length;
            }
        }
    }
    return size;
}

int main(int argc, char **argv)
{
    static uint8_t bytes[1 << 16];
    enum { ROUNDS = 6000 };
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file) return perror(argv[i]), 1;
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        LLVMFuzzerTestOneInput(bytes, size);
    }
    for (int i = 0; i < ROUNDS && argc < 2; i++) {
        size_t size = seed(bytes, (size_t)i);
        if (i >= SEEDS) size = shake(bytes, size);
        LLVMFuzzerTestOneInput(bytes, size);
    }
    puts("1 passed, 0 failed");
    return 0;
}

#endif
