/* The reader of safetensors files: good files give back what was written, bad ones one clear line.
 *
 * Files are built in memory, in blocks of their exact length, so that the address sanitizer sees the first byte read
 * outside. The allocator is wrapped (-Wl,--wrap in files.cmake): it counts, and it fails on request. */
#include "support/harness.h"
#include "io/json.h"
#include "io/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- The allocator, watched ------------------------------------------------------------------------------------- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

static struct {
    size_t asked;    /* bytes, all calls together */
    long fail_after; /* calls that succeed before all fail; -1: none fails */
} heap = {0, -1};

static bool allowed(size_t bytes)
{
    heap.asked += bytes;
    if (heap.fail_after == 0) return false;
    if (heap.fail_after > 0) heap.fail_after--;
    return true;
}

void *__wrap_malloc(size_t bytes) { return allowed(bytes) ? __real_malloc(bytes) : NULL; }
void *__wrap_calloc(size_t count, size_t bytes) { return allowed(count * bytes) ? __real_calloc(count, bytes) : NULL; }
void *__wrap_realloc(void *memory, size_t bytes) { return allowed(bytes) ? __real_realloc(memory, bytes) : NULL; }

/* ---- Building files --------------------------------------------------------------------------------------------- */

typedef struct blob {
    unsigned char *bytes;
    size_t size;
} blob;

static unsigned char paint(size_t i) { return (unsigned char)(i % 251); }

static blob file_of_length(uint64_t claimed, const char *header, size_t header_size, size_t data_size)
{
    blob file = {__real_malloc(8 + header_size + data_size), 8 + header_size + data_size};
    for (int i = 0; i < 8; i++) file.bytes[i] = (unsigned char)(claimed >> 8 * i);
    memcpy(file.bytes + 8, header, header_size);
    for (size_t i = 0; i < data_size; i++) file.bytes[8 + header_size + i] = paint(i);
    return file;
}

static blob file_of(const char *header, size_t data_size)
{
    return file_of_length(strlen(header), header, strlen(header), data_size);
}

static nn_safetensors *parse(blob file, char *error, size_t room)
{
    error[0] = 0;
    nn_safetensors *read;
    nn_safetensors_parse(&read, file.bytes, file.size, "t.safetensors", error, room);
    return read;
}

/* One line that begins with the file's name and has no control characters. */
static bool clean_line(const char *error)
{
    bool clean = strncmp(error, "t.safetensors: ", 15) == 0 && strlen(error) > 20;
    for (const char *p = error; *p; p++) clean = clean && (unsigned char)*p >= 0x20 && *p != 0x7f;
    return clean;
}

/* The file is refused, and the reason contains `words`. Takes the file over. */
static void refuse(blob file, const char *words, int line)
{
    char error[300];
    nn_safetensors *read = parse(file, error, sizeof error);
    expect(!read, "line %d: a file that should fail with '%s' was read", line, words);
    if (!read) expect(clean_line(error) && strstr(error, words), "line %d: '%s' lacks '%s'", line, error, words);
    nn_safetensors_free(read);
    free(file.bytes);
}

#define REFUSE(header, data_size, words) refuse(file_of(header, data_size), words, __LINE__)

/* Five tensors, listed out of order, the float32 one at an odd offset, one scalar, one empty; metadata; padding. */
static const char good_header[] =
    "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[3,27]},\n"
    " \"__metadata__\":{\"format\":\"pt\",\"quote\":\"\\\"\\\\\\/\\n\\u00e9\\ud83d\\ude00\",\"\":\"empty key\"},\n"
    " \"keep\":{\"shape\":[3],\"data_offsets\":[0,3],\"dtype\":\"BOOL\"},\n"
    " \"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[27,35]},\n"
    " \"none\":{\"dtype\":\"F16\",\"shape\":[4,0],\"data_offsets\":[27,27]},\n"
    " \"h\\u0061lf\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,1,2],\"data_offsets\":[35,39],\"later\":[{\"x\":[1.5e3,null]}"
    "]}}  ";
enum { GOOD_DATA = 39 };

/* ---- Good files ------------------------------------------------------------------------------------------------- */

static void expect_tensor(const nn_safetensors *file, const char *name, nn_safetensors_dtype dtype, int rank,
                          int64_t count, size_t begin, size_t end)
{
    const nn_safetensors_tensor *tensor = nn_safetensors_find(file, name);
    if (!expect(tensor, "%s is missing", name)) return;
    expect(strcmp(tensor->name, name) == 0, "found %s instead of %s", tensor->name, name);
    expect(tensor->dtype == dtype && tensor->rank == rank && tensor->count == count, "%s: %s of rank %d, %lld elements",
           name, nn_safetensors_dtype_name(tensor->dtype), tensor->rank, (long long)tensor->count);
    expect((uintptr_t)tensor->data % NN_SAFETENSORS_ALIGN == 0, "%s lies at %p", name, tensor->data);
    for (size_t i = begin; i < end; i++) {
        unsigned char got = ((const unsigned char *)tensor->data)[i - begin];
        expect(got == paint(i), "%s: byte %zu is %d, not %d", name, i - begin, got, paint(i));
    }
}

TEST(a_file_gives_back_what_was_written)
{
    char error[300];
    blob bytes = file_of(good_header, GOOD_DATA);
    nn_safetensors *file = parse(bytes, error, sizeof error);
    free(bytes.bytes); /* the tensors are copies */
    if (!expect(file, "%s", error)) return;
    expect_tensor(file, "keep", NN_SAFETENSORS_BOOL, 1, 3, 0, 3);
    expect_tensor(file, "w", NN_SAFETENSORS_F32, 2, 6, 3, 27);
    expect_tensor(file, "step", NN_SAFETENSORS_I64, 0, 1, 27, 35);
    expect_tensor(file, "none", NN_SAFETENSORS_F16, 2, 0, 27, 27);
    expect_tensor(file, "half", NN_SAFETENSORS_BF16, 5, 2, 35, 39);
    expect(nn_safetensors_find(file, "none")->data, "a tensor without elements has no address");
    expect(!nn_safetensors_find(file, "W") && !nn_safetensors_find(file, ""), "found a tensor that is not there");
    expect(nn_safetensors_count(file) == 5, "%zu tensors", nn_safetensors_count(file));
    for (size_t i = 1; i < nn_safetensors_count(file); i++)
        expect(strcmp(nn_safetensors_get(file, i - 1)->name, nn_safetensors_get(file, i)->name) < 0, "not in order");
    nn_safetensors_free(file);
}

TEST(metadata_is_decoded)
{
    char error[300];
    blob bytes = file_of(good_header, GOOD_DATA);
    nn_safetensors *file = parse(bytes, error, sizeof error);
    free(bytes.bytes);
    if (!expect(file, "%s", error)) return;
    expect(nn_safetensors_metadata_count(file) == 3, "%zu entries", nn_safetensors_metadata_count(file));
    expect(strcmp(nn_safetensors_metadata_key(file, 1), "format") == 0, "key 1 is %s",
           nn_safetensors_metadata_key(file, 1));
    static const struct {
        const char *key, *value;
    } want[] = {{"format", "pt"}, {"", "empty key"}, {"quote", "\"\\/\n\xc3\xa9\xf0\x9f\x98\x80"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const char *value = nn_safetensors_metadata(file, want[i].key);
        expect(value && strcmp(value, want[i].value) == 0, "'%s' is '%s'", want[i].key, value ? value : "missing");
    }
    expect(!nn_safetensors_metadata(file, "zzz") && !nn_safetensors_metadata(file, "a"),
           "found a key that is not there");
    nn_safetensors_free(file);
}

TEST(every_dtype_has_its_size)
{
    static const struct {
        const char *word, *name;
        size_t size;
    } known[] = {{"BOOL", "bool", 1},           {"U8", "uint8", 1},           {"I8", "int8", 1},
                 {"U16", "uint16", 2},          {"I16", "int16", 2},          {"F16", "float16", 2},
                 {"BF16", "bfloat16", 2},       {"U32", "uint32", 4},         {"I32", "int32", 4},
                 {"F32", "float32", 4},         {"U64", "uint64", 8},         {"I64", "int64", 8},
                 {"F64", "float64", 8},         {"C64", "complex64", 8},      {"F8_E5M2", "float8_e5m2", 1},
                 {"F8_E4M3", "float8_e4m3", 1}, {"F8_E8M0", "float8_e8m0", 1}};
    expect(sizeof known / sizeof *known == NN_SAFETENSORS_DTYPES, "a dtype is not tested");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char header[200], error[300], what[60], want[60];
        size_t bytes = 6 * known[i].size;
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[2,3],\"data_offsets\":[0,%zu]}}",
                 known[i].word, bytes);
        blob whole = file_of(header, bytes);
        nn_safetensors *file = parse(whole, error, sizeof error);
        free(whole.bytes);
        if (!expect(file, "%s", error)) continue;
        snprintf(want, sizeof want, "%s (2,3)", known[i].name);
        nn_safetensors_describe(what, sizeof what, nn_safetensors_get(file, 0));
        expect(strcmp(what, want) == 0, "%s reads as %s", want, what);
        expect(nn_safetensors_dtype_size(nn_safetensors_get(file, 0)->dtype) == known[i].size, "%s: wrong size", want);
        nn_safetensors_free(file);
    }
}

TEST(a_view_is_dense_and_of_the_right_type)
{
    char error[300];
    blob bytes = file_of(good_header, GOOD_DATA);
    nn_safetensors *file = parse(bytes, error, sizeof error);
    free(bytes.bytes);
    if (!expect(file, "%s", error)) return;
    mha_tensor view;
    expect(nn_safetensors_view(nn_safetensors_find(file, "w"), &view), "no view of a float32 tensor");
    expect(view.type == MHA_FLOAT32 && view.rank == 2 && view.size[0] == 2 && view.size[1] == 3 &&
               view.stride[0] == 3 && view.stride[1] == 1 && view.data == nn_safetensors_find(file, "w")->data,
           "not the dense view of w");
    expect(nn_safetensors_view(nn_safetensors_find(file, "step"), &view) && view.type == MHA_INT64 && view.rank == 0,
           "step");
    expect(nn_safetensors_view(nn_safetensors_find(file, "keep"), &view) && view.type == MHA_BOOL, "keep");
    expect(!nn_safetensors_view(nn_safetensors_find(file, "half"), &view), "a view with five axes");
    nn_safetensors_free(file);
}

TEST(the_smallest_file_is_an_empty_one)
{
    char error[300];
    blob bytes = file_of("{}", 0);
    nn_safetensors *file = parse(bytes, error, sizeof error);
    expect(file && nn_safetensors_count(file) == 0 && nn_safetensors_metadata_count(file) == 0, "%s", error);
    if (file)
        expect(!nn_safetensors_find(file, "x") && !nn_safetensors_metadata(file, "x"), "found something in nothing");
    nn_safetensors_free(file);
    free(bytes.bytes);
}

/* ---- Bad files -------------------------------------------------------------------------------------------------- */

#define ONE(fields) "{\"x\":{" fields "}}"
#define F32_4       "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"

TEST(bad_records_are_refused)
{
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[2,3,4,8],\"data_offsets\":[0,96]"), 96,
           "tensor \"x\" says 96 bytes, but float32 (2,3,4,8) needs 768");
    REFUSE(ONE("\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]"), 4,
           "has the dtype \"F31\", which is not supported");
    REFUSE(ONE("\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype is not a string");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]"), 4, "shape is not an array");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4, "shape has a negative number");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, "whole number expected");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]"), 4, "number expected");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4, "more than 8 numbers");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]"), 4,
           "does not fit 63 bits");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]"), 0,
           "does not fit 63 bits");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,0]"), 0, "does not fit 64 bits");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, "after its end");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 4,
           "tensor \"x\" ends at byte 8 of the data, but the file has 4; the file is truncated");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]"), 4,
           "says 9223372036854775807 bytes, but float32 (1) needs 4");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, "data_offsets is not a pair");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4, "more than 2 numbers");
    REFUSE(ONE("\"shape\":[1],\"data_offsets\":[0,4]"), 4, "has no dtype");
    REFUSE(ONE("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "has no shape");
    REFUSE(ONE("\"dtype\":\"F32\",\"shape\":[1]"), 4, "has no data_offsets");
    REFUSE(ONE(F32_4 ",\"shape\":[1]"), 4, "shape occurs twice");
    REFUSE("{\"x\":[]}", 0, "tensor \"x\" is not an object");
}

TEST(records_that_do_not_fit_together_are_refused)
{
#define PAIR(a0, a1, b0, b1)                                                    \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" a0 "," a1 "]}," \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" b0 "," b1 "]}}"
    REFUSE(PAIR("0", "4", "2", "6"), 8, "tensors \"a\" and \"b\" overlap");
    REFUSE(PAIR("0", "4", "0", "4"), 8, "tensors \"a\" and \"b\" overlap");
    REFUSE(PAIR("6", "10", "0", "4"), 10, "bytes 4 to 5 of the data belong to no tensor");
    REFUSE(PAIR("1", "5", "5", "9"), 9, "bytes 0 to 0 of the data belong to no tensor");
    REFUSE(PAIR("0", "4", "4", "8"), 9, "the last tensor ends at byte 8 of the data, but the file has 9");
    REFUSE("{}", 1, "ends at byte 0 of the data, but the file has 1");
    REFUSE("{\"x\":{" F32_4 "},\"\\u0078\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
           "tensor \"x\" occurs twice");
    REFUSE("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "metadata \"k\" occurs twice");
    REFUSE("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "\"__metadata__\" occurs twice");
    REFUSE("{\"__metadata__\":{\"k\":1}}", 0, "metadata \"k\" is not a string");
    REFUSE("{\"__metadata__\":[\"k\"]}", 0, "\"__metadata__\" is not an object");
}

TEST(bad_json_is_refused)
{
    REFUSE("", 0, "does not begin with '{'");
    REFUSE(" {}", 0, "does not begin with '{'");
    REFUSE("[]", 0, "does not begin with '{'");
    REFUSE("{", 0, "expected, found the end");
    REFUSE("{\"x\"", 0, "':' expected, found the end of the text");
    REFUSE("{\"x\" 1}", 0, "':' expected, found '1'");
    REFUSE("{x:1}", 0, "'\"' expected, found 'x'");
    REFUSE("{\"x", 0, "ends inside a string");
    REFUSE("{}x", 0, "unexpected text after the end");
    REFUSE("{}{}", 0, "unexpected text after the end");
    REFUSE("{\"__metadata__\":{\"k\":\"v\",}}", 0, "a comma before '}'");
    REFUSE("{\"__metadata__\":{\"k\":\"v\" \"l\":\"w\"}}", 0, "'}' expected");
    REFUSE("{\"__metadata__\":{\"k\":\"\\x\"}}", 0, "invalid escape");
    REFUSE("{\"__metadata__\":{\"k\":\"\\u12g4\"}}", 0, "four hexadecimal digits");
    REFUSE("{\"__metadata__\":{\"k\":\"\\u123", 0, "four hexadecimal digits"); /* the text ends there */
    REFUSE("{\"__metadata__\":{\"k\":\"\\ud800\"}}", 0, "half of a surrogate pair");
    REFUSE("{\"__metadata__\":{\"k\":\"\\udc00\"}}", 0, "half of a surrogate pair");
    REFUSE("{\"__metadata__\":{\"k\":\"\\ud800\\u0041\"}}", 0, "half of a surrogate pair");
    REFUSE("{\"__metadata__\":{\"k\":\"\\ud800\\u00\"}}", 0, "four hexadecimal digits");
    REFUSE("{\"__metadata__\":{\"k\":\"\\u0000\"}}", 0, "a NUL inside a string");
    REFUSE("{\"__metadata__\":{\"k\":\"\n\"}}", 0, "the control character 0x0a inside a string");
    REFUSE(ONE("\"y\":01," F32_4), 4, "leading zero");
    REFUSE(ONE("\"y\":1.," F32_4), 4, "end in a decimal point");
    REFUSE(ONE("\"y\":1e," F32_4), 4, "lacks its exponent");
    REFUSE(ONE("\"y\":-," F32_4), 4, "number expected");
    REFUSE(ONE("\"y\":nil," F32_4), 4, "value expected");
    REFUSE(ONE("\"y\":," F32_4), 4, "value expected");
    static const char nul[] = "{}\0";
    refuse(file_of_length(3, nul, 3, 0), "unexpected text after the end", __LINE__);
}

TEST(bad_utf8_is_refused)
{
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xc3",
                                      "\xe2\x82",
                                      "\xf0\x9f\x98"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char header[80];
        snprintf(header, sizeof header, "{\"__metadata__\":{\"k\":\"%s\"}}", bad[i]);
        REFUSE(header, 0, "not UTF-8");
    }
}

TEST(nesting_stops_at_the_limit)
{
    char header[400], deep[2 * NN_JSON_DEPTH + 10];
    for (int depth = NN_JSON_DEPTH - 2; depth <= NN_JSON_DEPTH - 1; depth++) { /* two levels are open around it */
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        deep[2 * depth] = 0;
        snprintf(header, sizeof header, ONE("\"y\":%s," F32_4), deep);
        if (depth > NN_JSON_DEPTH - 2) {
            REFUSE(header, 4, "nested more than");
            continue;
        }
        char error[300];
        blob bytes = file_of(header, 4);
        nn_safetensors *file = parse(bytes, error, sizeof error);
        expect(file, "%s", error);
        nn_safetensors_free(file);
        free(bytes.bytes);
    }
}

/* Whole lines: what a person sees who gives a file of another kind, or half of one. */
TEST(other_kinds_of_files_are_called_so)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } cases[] = {
        {"Some text, as of a README.", 26, "not a safetensors file"},
        {"PK\3\4\0\0\10\10\0\0\0\0archive/data.pkl", 28,
         "is a file of PyTorch, a pickle, which is not read; save a model with save_pretrained, or tensors with "
         "safetensors.torch.save_file"},
        {"GGUF\3\0\0\0\5\0\0\0\0\0\0\0", 16,
         "is a GGUF file, which is not read; the safetensors files that it was made from are"},
        {"\x80\2\x8a\x0al\xfc\x9c"
         "F\xf9 j\xa8P\x19.\x80",
         16,
         "is a file of PyTorch, a pickle, which is not read; save a model with save_pretrained, or tensors with "
         "safetensors.torch.save_file"}, /* torch.save as it was */
        {"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 1\n", 64,
         "is a Git LFS pointer, not the file that it stands for; 'git lfs pull' in its folder downloads that"},
        {"\x05\0\0\0\0\0\0\0hello", 13, "not a safetensors file: the header does not begin with '{'"},
        {"\0\0\0\0\0\0\0\0{}", 10, "not a safetensors file: the header does not begin with '{'"},
        {"\x20\0\0\0\0\0\0\0hello", 13, "not a safetensors file"},
        {"\1\xe1\xf5\5\0\0\0\0{}", 10,
         "not a safetensors file: a header of 100000001 bytes is more than the 100000000 allowed"},
        {"\0\xe1\xf5\5\0\0\0\0{}", 10,
         "the header says 100000000 bytes, but the file has 2 after its length; the file is truncated"},
        {"\x20\0\0\0\0\0\0\0", 8,
         "the header says 32 bytes, but the file has 0 after its length; the file is truncated"},
        {"PK\3\4", 4, "4 bytes are too few for a safetensors file"},
    };
    char path[] = "/tmp/mha-test-XXXXXX", error[300], want[300];
    int descriptor = mkstemp(path);
    if (!expect(descriptor >= 0, "no file")) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(want, sizeof want, "t.safetensors: %s", cases[i].says);
        expect(!parse((blob){(unsigned char *)(uintptr_t)cases[i].bytes, cases[i].size}, error, sizeof error), "read");
        expect(strcmp(error, want) == 0, "'%s', not '%s'", error, want);
        expect(!ftruncate(descriptor, 0) && pwrite(descriptor, cases[i].bytes, cases[i].size, 0) > 0, "no write");
        nn_safetensors *read;
        expect(nn_safetensors_open(&read, path, error, sizeof error) == MHA_BAD_FILE && !read, "read");
        expect(strcmp(error + strlen(path), want + 13) == 0, "'%s', not '%s'", error, want);
    }
    close(descriptor);
    unlink(path);
}

TEST(every_truncation_is_refused)
{
    blob whole = file_of(good_header, GOOD_DATA);
    for (size_t size = 0; size < whole.size; size++) {
        blob part = {__real_malloc(size ? size : 1), size};
        memcpy(part.bytes, whole.bytes, size);
        refuse(part, size < 8 ? "too few" : "", __LINE__);
    }
    free(whole.bytes);
}

TEST(every_wrong_header_length_is_refused)
{
    size_t right = strlen(good_header);
    for (uint64_t claimed = 0; claimed < right + GOOD_DATA + 20; claimed++) {
        if (claimed == right || claimed == right - 1 || claimed == right - 2) continue; /* the padding may be cut */
        refuse(file_of_length(claimed, good_header, right, GOOD_DATA),
               claimed > right + GOOD_DATA ? "the header says" : "", __LINE__);
    }
    static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63, UINT64_C(1) << 32, 100000001};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        heap.asked = 0;
        refuse(file_of_length(huge[i], good_header, right, GOOD_DATA), "not a safetensors file: a header of", __LINE__);
        expect(heap.asked < 4096, "%zu bytes were allocated for a header that is not there", heap.asked);
    }
}

/* Each byte of a good file set to each value: read or refused, in one line either way, and nothing else happens. */
TEST(no_single_byte_does_harm)
{
    blob whole = file_of(good_header, GOOD_DATA);
    for (size_t at = 0; at < whole.size - GOOD_DATA; at++) {
        unsigned char kept = whole.bytes[at];
        for (int value = 0; value < 256; value++) {
            char error[300];
            whole.bytes[at] = (unsigned char)value;
            nn_safetensors *file = parse(whole, error, sizeof error);
            if (!file) expect(clean_line(error), "byte %zu set to %d: '%s'", at, value, error);
            nn_safetensors_free(file);
        }
        whole.bytes[at] = kept;
    }
    free(whole.bytes);
}

TEST(names_cannot_forge_messages)
{
    char header[1200], name[1000];
    REFUSE("{\"\\u001b[31m\\n\\u009b\":[]}", 0, "tensor \"\\u001b[31m\\u000a\\u009b\" is not an object");
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    snprintf(header, sizeof header, "{\"%s\":[]}", name);
    REFUSE(header, 0, "nnn...\" is not an object");
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

/* Headers that pack as many records as they can: what is allocated stays a small multiple of the file. */
TEST(memory_is_justified_by_the_file)
{
    static const char *const units[] = {"\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", "\"\":\"\""};
    for (int kind = 0; kind < 2; kind++) {
        size_t room = 1 << 20, n = 0;
        char *header = __real_malloc(room);
        n += (size_t)snprintf(header, room, kind ? "{\"__metadata__\":{" : "{");
        while (n + 80 < room) n += (size_t)snprintf(header + n, room - n, "%s,", units[kind]);
        n--; /* the last comma */
        n += (size_t)snprintf(header + n, room - n, kind ? "}}" : "}");
        heap.asked = 0;
        refuse(file_of(header, 0), "occurs twice", __LINE__);
        expect(heap.asked < 16 * room, "%zu bytes were allocated for a file of %zu", heap.asked, n + 8);
        free(header);
    }
}

TEST(no_memory_is_an_error_wherever_it_strikes)
{
    blob bytes = file_of(good_header, GOOD_DATA);
    long step = 0;
    for (;; step++) {
        char error[300];
        heap.fail_after = step;
        nn_safetensors *file = parse(bytes, error, sizeof error);
        heap.fail_after = -1;
        nn_safetensors_free(file);
        if (file) break;
        expect(strstr(error, " memory"), "allocation %ld: '%s'", step, error);
        if (step > 100) break;
    }
    expect(step >= 5 && step < 100, "it took %ld allocations", step);
    free(bytes.bytes);
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

static void expect_open(const char *path, const char *words)
{
    char error[400] = "";
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    expect(!file == !!words, "%s: %s", path, file ? "was read" : error);
    if (words) expect(strstr(error, words) && strncmp(error, path, strlen(path)) == 0, "'%s' lacks '%s'", error, words);
    nn_safetensors_free(file);
}

TEST(files_are_opened_by_path)
{
    char folder[] = "/tmp/mha-test-XXXXXX", path[64], pipe[64];
    if (!expect(mkdtemp(folder), "no temporary folder")) return;
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    snprintf(pipe, sizeof pipe, "%s/pipe", folder);
    expect_open(path, "No such file");
    expect_open(folder, "not a regular file");
    if (expect(mkfifo(pipe, 0600) == 0, "no pipe")) expect_open(pipe, "not a regular file");

    blob bytes = file_of(good_header, GOOD_DATA);
    for (size_t cut = 0; cut < 2; cut++) {
        FILE *out = fopen(path, "wb");
        if (!expect(out, "cannot write %s", path)) break;
        fwrite(bytes.bytes, 1, bytes.size - cut, out);
        fclose(out);
        expect_open(path, cut ? "ends at byte 39 of the data, but the file has 38; the file is truncated" : NULL);
    }
    free(bytes.bytes);
    unlink(path);
    unlink(pipe);
    rmdir(folder);
}

TEST(an_error_buffer_of_any_size_will_do)
{
    char error[32];
    blob bytes = file_of("{\"x\":[]}", 0);
    for (size_t room = 0; room < sizeof error; room++) {
        memset(error, '#', sizeof error);
        nn_safetensors *read;
        expect(nn_safetensors_parse(&read, bytes.bytes, bytes.size, "t", error, room) == MHA_BAD_FILE && !read,
               "a bad file was read");
        expect(error[room] == '#', "wrote outside %zu bytes", room);
        if (room) expect(memchr(error, 0, room), "no end within %zu bytes", room);
    }
    nn_safetensors *read;
    expect(nn_safetensors_parse(&read, NULL, 0, "t", NULL, 0) == MHA_BAD_FILE && !read, "nothing was read as a file");
    free(bytes.bytes);
}

TEST(quoting_fits_any_room)
{
    char out[40];
    for (size_t room = 8; room <= sizeof out; room++) {
        memset(out, '#', sizeof out);
        nn_json_quote(out, room, "a\"b\\c\x01\xc3\xa9\xff long enough to be cut somewhere");
        size_t n = strnlen(out, sizeof out);
        expect(n < room && n >= 2 && out[0] == '"' && out[n - 1] == '"', "room %zu gives %.*s", room, (int)n, out);
        nn_json j = nn_json_open(out, n);
        expect(nn_json_string(&j, NULL, NULL) && nn_json_end(&j), "room %zu gives %s: %s", room, out, j.why);
    }
    expect(strcmp(nn_json_quote(out, sizeof out, "\xc3\xa9\xff"), "\"\xc3\xa9?\"") == 0, "%s", out);
}
