/* For tests of `mha view`: a page, the data in it, and files of attention weights. */
#ifndef VIEW_PAGES_H
#define VIEW_PAGES_H

#include "cli/page.h"
#include "io/safetensors_write.h"
#include "cli/small_vit.h"

enum { PAGE_MOST = 3000000 };

/* A piece of a text. */
typedef struct piece {
    const char *at;
    size_t size;
} piece;

static inline const char *read_page(const char *path)
{
    static char page[PAGE_MOST + 2];
    slurp(path, page, sizeof page);
    expect(*page && strlen(page) <= PAGE_MOST, "%s: %zu bytes", path, strlen(page));
    return page;
}

/* The page that the command makes of it, without a word on standard error. */
static inline const char *view(const char *args)
{
    char line[600];
    unlink("p.html");
    snprintf(line, sizeof line, "view %s -o p.html", args);
    const said *it = command("LC_ALL=C", line);
    expect(it->status == 0 && !*it->err, "%s: exit %d: %s", args, it->status, it->err);
    expect(strstr(it->out, "p.html: ") && strstr(it->out, " MB") && strstr(it->out, "browser"), "%s", it->out);
    return read_page("p.html");
}

/* The JSON object of a page, which the browser gets to see as the text of an element. */
static inline piece data_of(const char *page)
{
    static const char before[] = "<script type=\"application/json\" id=\"mha-data\">";
    const char *start = strstr(page, before), *end = start ? strstr(start, "</script>") : NULL;
    if (!expect(end && count_of(page, before) == 1, "no data")) return (piece){"{}", 2};
    start += sizeof before - 1;
    expect(!memchr(start, '<', (size_t)(end - start)), "a '<' among the data");
    return (piece){start, (size_t)(end - start)};
}

/* The value of a key of an object, quotes and all; of none, nothing. */
static inline piece member(piece object, const char *wanted)
{
    nn_json j = nn_json_open(object.at, object.size);
    char key[64];
    piece value = {"", 0};
    nn_json_enter(&j, '{');
    while (nn_json_more(&j, '}')) {
        nn_json_key(&j, key, NULL);
        nn_json_peek(&j);
        size_t start = j.at;
        nn_json_skip(&j);
        if (strcmp(key, wanted) == 0) value = (piece){object.at + start, j.at - start};
    }
    expect(nn_json_end(&j), "not JSON: %s", j.why);
    return value;
}

/* Element n of an array; of none, nothing. */
static inline piece element(piece array, int n)
{
    nn_json j = nn_json_open(array.at, array.size);
    piece value = {"", 0};
    nn_json_enter(&j, '[');
    for (int i = 0; nn_json_more(&j, ']'); i++) {
        nn_json_peek(&j);
        size_t start = j.at;
        nn_json_skip(&j);
        if (i == n) value = (piece){array.at + start, j.at - start};
    }
    expect(nn_json_end(&j), "not JSON: %s", j.why);
    return value;
}

static inline int length_of(piece array)
{
    int n = 0;
    while (element(array, n).size) n++;
    return n;
}

static inline bool is(piece p, const char *text) { return p.size == strlen(text) && !memcmp(p.at, text, p.size); }

#define EXPECT_MEMBER(object, key, text)                                                            \
    expect(is(member(object, key), text), "%s is %.*s, not %s", key, (int)member(object, key).size, \
           member(object, key).at, text)

/* The bytes behind a string in base64; how many. */
static inline size_t unbase64(piece p, unsigned char *out, size_t room)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t count = 0;
    uint32_t bits = 0;
    if (!expect(p.size >= 2 && p.at[0] == '"' && p.size % 4 == 2, "no base64 of %zu characters", p.size)) return 0;
    for (size_t i = 1; i + 1 < p.size; i++) {
        const char *digit = p.at[i] == '=' ? digits : strchr(digits, p.at[i]);
        if (!expect(digit && *digit, "'%c' in base64", p.at[i])) return 0;
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (i % 4) continue;
        for (int k = 16; k >= 0; k -= 8)
            if (count < room) out[count++] = (unsigned char)(bits >> k);
    }
    for (size_t i = p.size - 2; p.at[i] == '='; i--) count--;
    return count;
}

/* ---- Attention weights ------------------------------------------------------------------------------------------ */

/* Weights of the shape (of one layer, if layers is 0) whose rows sum to one: of row r, 1/2, 1/4, 1/8 and 1/8 on the
 * keys behind key r. They are the same in every type. */
static inline float paint(int64_t row, int64_t key, int64_t keys)
{
    static const float shares[] = {0.5f, 0.25f, 0.125f, 0.125f};
    float sum = 0;
    for (int i = 0; i < 4; i++)
        if ((row + i * 3) % keys == key) sum += shares[i];
    return sum;
}

static inline void write_weights(const char *path, const char *name, nn_safetensors_dtype dtype, const int64_t *shape,
                                 int rank, const nn_safetensors_pair *notes, size_t note_count)
{
    static float numbers[1 << 20];
    static unsigned char bytes[sizeof numbers];
    int64_t count = 1, keys = shape[rank - 1];
    char error[300] = "";
    for (int i = 0; i < rank; i++) count *= shape[i];
    if (!expect((size_t)count <= sizeof numbers / sizeof *numbers, "too many")) return;
    for (int64_t i = 0; i < count; i++) numbers[i] = paint(i / keys, i % keys, keys);
    mha_context *ctx = NULL;
    mha_type type = dtype == NN_SAFETENSORS_BF16  ? MHA_BFLOAT16
                    : dtype == NN_SAFETENSORS_F16 ? MHA_FLOAT16
                                                  : MHA_FLOAT32;
    if (mha_context_create(&ctx, NULL) ||
        mha_tensor_copy(ctx, mha_tensor_1d(bytes, type, count), mha_tensor_1d(numbers, MHA_FLOAT32, count)))
        expect(false, "no copy");
    mha_context_free(ctx);
    nn_safetensors_item item = nn_safetensors_item_dense(name, dtype, rank, shape, bytes);
    expect(!nn_safetensors_write(path, &item, 1, notes, note_count, error, sizeof error), "%s", error);
}

#endif
