/* The writer of safetensors files: what is written is what the reader finds, the bytes are the same every time, and what
 * cannot be written leaves the old file. Allocations are wrapped (-Wl,--wrap in files.cmake) and fail on request. */
#include "io/buffer.h"
#include "support/saving.h"

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static long fail_after = -1; /* allocations that succeed before one fails; -1: none fails */
static bool fail_on;         /* all after it fail, too */
static bool struck;          /* one has failed */

static bool strike(void)
{
    bool fails = fail_after == 0;
    struck = struck || fails;
    if (fail_after > 0 || (fails && !fail_on)) fail_after--;
    return fails;
}

void *__wrap_malloc(size_t bytes) { return strike() ? NULL : __real_malloc(bytes); }
void *__wrap_realloc(void *old, size_t bytes) { return strike() ? NULL : __real_realloc(old, bytes); }

/* ---- What is written is read ------------------------------------------------------------------------------------ */

static nn_safetensors *round_trip(const nn_safetensors_item *items, size_t count, const nn_safetensors_pair *pairs,
                                  size_t pair_count)
{
    char error[400] = "";
    const char *path = in_folder("round.safetensors");
    if (!expect(!nn_safetensors_write(path, items, count, pairs, pair_count, error, sizeof error), "%s", error))
        return NULL;
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    expect(file, "%s", error);
    return file;
}

TEST(every_type_comes_back)
{
    static const float f32[6] = {1, -2, 0.5f, INFINITY, 1e-40f, 3};
    static const uint16_t half[6] = {1, 2, 3, 0x7c00, 0xffff, 6};
    static const unsigned char bools[6] = {0, 1, 1, 0, 0, 1};
    static const int64_t i64[6] = {INT64_MIN, -1, 0, 1, 2, INT64_MAX};
    static const double f64[6] = {1e300, -1, 0, 1, 2, 3};
    static const int64_t shape[2] = {2, 3};
    nn_safetensors_item items[] = {
        nn_safetensors_item_view("f32", mha_tensor_2d(f32, MHA_FLOAT32, 2, 3)),
        nn_safetensors_item_view("bf16", mha_tensor_2d(half, MHA_BFLOAT16, 2, 3)),
        nn_safetensors_item_view("f16", mha_tensor_2d(half, MHA_FLOAT16, 2, 3)),
        nn_safetensors_item_view("bool", mha_tensor_2d(bools, MHA_BOOL, 2, 3)),
        nn_safetensors_item_view("i64", mha_tensor_2d(i64, MHA_INT64, 2, 3)),
        nn_safetensors_item_dense("f64", NN_SAFETENSORS_F64, 2, shape, f64),
        nn_safetensors_item_dense("u8", NN_SAFETENSORS_U8, 2, shape, bools),
    };
    enum { ITEMS = sizeof items / sizeof *items };
    nn_safetensors *file = round_trip(items, ITEMS, NULL, 0);
    if (!file) return;
    expect(nn_safetensors_count(file) == ITEMS && nn_safetensors_metadata_count(file) == 0, "%zu tensors, %zu notes",
           nn_safetensors_count(file), nn_safetensors_metadata_count(file));
    for (int i = 0; i < ITEMS; i++) {
        const nn_safetensors_tensor *got = nn_safetensors_find(file, items[i].name);
        if (!expect(got, "%s is missing", items[i].name)) continue;
        size_t bytes = 6 * nn_safetensors_dtype_size(items[i].dtype);
        expect(got->dtype == items[i].dtype && got->rank == 2 && got->shape[0] == 2 && got->shape[1] == 3,
               "%s has another shape or type", items[i].name);
        expect(memcmp(got->data, items[i].data, bytes) == 0, "%s has other bytes", items[i].name);
        expect(got->begin % (int64_t)nn_safetensors_dtype_size(got->dtype) == 0, "%s is not aligned", items[i].name);
    }
    nn_safetensors_free(file);
}

/* Element by element against the view, for every order of axes, steps of 2 and -1, and a step of 0. */
TEST(views_are_written_dense)
{
    static float numbers[4 * 6 * 10];
    for (int i = 0; i < 4 * 6 * 10; i++) numbers[i] = (float)i;
    mha_tensor views[8] = {mha_tensor_3d(numbers, MHA_FLOAT32, 4, 6, 10)};
    views[1] = mha_tensor_swap(views[0], 0, 1);
    views[2] = mha_tensor_swap(views[0], 1, 2);
    views[3] = mha_tensor_swap(views[0], 0, 2);
    views[4] = views[5] = views[6] = views[7] = views[0];
    views[4].size[2] = 5, views[4].stride[2] = 2;
    views[5].data = numbers + 9, views[5].stride[2] = -1;
    views[6].stride[1] = 0;
    views[7].size[1] = 1, views[7].stride[1] = 99; /* the step of a single element says nothing */
    for (int v = 0; v < 8; v++) {
        mha_tensor view = views[v];
        nn_safetensors_item item = nn_safetensors_item_view("x", view);
        nn_safetensors *file = round_trip(&item, 1, NULL, 0);
        if (!file) return;
        const nn_safetensors_tensor *x = nn_safetensors_find(file, "x");
        const float *got = x->data;
        for (int64_t i = 0; i < view.size[0]; i++)
            for (int64_t j = 0; j < view.size[1]; j++)
                for (int64_t k = 0; k < view.size[2]; k++, got++) {
                    float want = ((float *)view.data)[i * view.stride[0] + j * view.stride[1] + k * view.stride[2]];
                    expect(*got == want, "view %d (%d,%d,%d): %g, not %g", v, (int)i, (int)j, (int)k, (double)*got,
                           (double)want);
                }
        nn_safetensors_free(file);
    }
}

TEST(scalars_and_empty_tensors_come_back)
{
    static const float one = 7;
    static const int64_t none[3] = {3, 0, 5}, deep[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    nn_safetensors_item items[] = {nn_safetensors_item_dense("none", NN_SAFETENSORS_F32, 3, none, NULL),
                                   nn_safetensors_item_dense("scalar", NN_SAFETENSORS_F32, 0, NULL, &one),
                                   nn_safetensors_item_dense("deep", NN_SAFETENSORS_F32, 8, deep, &one),
                                   nn_safetensors_item_dense("nothing", NN_SAFETENSORS_F64, 1, none + 1, NULL)};
    nn_safetensors *file = round_trip(items, 4, NULL, 0);
    if (!file) return;
    expect(nn_safetensors_find(file, "none")->rank == 3 && nn_safetensors_find(file, "none")->shape[2] == 5, "none");
    expect(nn_safetensors_find(file, "nothing")->count == 0, "nothing");
    expect(*(const float *)nn_safetensors_find(file, "scalar")->data == 7, "scalar");
    expect(nn_safetensors_find(file, "deep")->rank == 8 && *(const float *)nn_safetensors_find(file, "deep")->data == 7,
           "deep");
    nn_safetensors_free(file);
    file = round_trip(NULL, 0, NULL, 0);
    if (file) expect(nn_safetensors_count(file) == 0, "a file of nothing has something");
    nn_safetensors_free(file);
}

TEST(odd_names_and_notes_come_back)
{
    static const char *const odd[] = {
        "",       "a\"b\\c/d",      "\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80",
        "\x7f",   "\x01\x1f\t\n\r", "\xc2\x80\xc2\x9f",
        "{}[]:,", "in_proj_weight", "a name that is rather long, as names go, and longer"};
    enum { ODD = sizeof odd / sizeof *odd };
    nn_safetensors_item items[ODD];
    nn_safetensors_pair pairs[ODD];
    float numbers[ODD];
    for (int i = 0; i < ODD; i++) {
        numbers[i] = (float)i;
        items[i] = nn_safetensors_item_view(odd[i], mha_tensor_1d(&numbers[i], MHA_FLOAT32, 1));
        pairs[i] = (nn_safetensors_pair){odd[i], odd[ODD - 1 - i]};
    }
    nn_safetensors *file = round_trip(items, ODD, pairs, ODD);
    if (!file) return;
    for (int i = 0; i < ODD; i++) {
        const nn_safetensors_tensor *got = nn_safetensors_find(file, odd[i]);
        const char *value = nn_safetensors_metadata(file, odd[i]);
        expect(got && *(const float *)got->data == (float)i, "name %d is lost", i);
        expect(value && strcmp(value, odd[ODD - 1 - i]) == 0, "note %d is lost", i);
    }
    nn_safetensors_free(file);
}

/* The bytes by hand: a header padded to a multiple of 8, wider elements first, then names; whatever the order here. */
TEST(the_bytes_are_the_same_every_time)
{
    static const char header[] = "{\"__metadata__\":{\"a\":\"1\",\"b\":\"2\"},"
                                 "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                                 "\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"
                                 "\"k\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[16,19]},"
                                 "\"z\":{\"dtype\":\"BOOL\",\"shape\":[0],\"data_offsets\":[19,19]}}";
    static const float w[2] = {1, 2};
    static const int64_t n = 5;
    static const bool k[3] = {true, false, true};
    nn_safetensors_item items[] = {nn_safetensors_item_view("z", mha_tensor_1d(NULL, MHA_BOOL, 0)),
                                   nn_safetensors_item_view("k", mha_tensor_1d(k, MHA_BOOL, 3)),
                                   nn_safetensors_item_view("w", mha_tensor_2d(w, MHA_FLOAT32, 1, 2)),
                                   nn_safetensors_item_dense("n", NN_SAFETENSORS_I64, 0, NULL, &n)};
    nn_safetensors_pair pairs[] = {{"b", "2"}, {"a", "1"}};
    unsigned char want[400] = {0}, got[400];
    size_t length = (sizeof header - 1 + 7) / 8 * 8, size = 8 + length + 19;
    want[0] = (unsigned char)length, want[1] = (unsigned char)(length >> 8);
    memset(want + 8, ' ', length);
    memcpy(want + 8, header, sizeof header - 1);
    memcpy(want + 8 + length, &n, 8);
    memcpy(want + 16 + length, w, 8);
    memcpy(want + 24 + length, k, 3);
    for (int round = 0; round < 2; round++) {
        char error[300] = "";
        const char *path = in_folder("bytes.safetensors");
        expect(!nn_safetensors_write(path, items, 4, pairs, 2, error, sizeof error), "%s", error);
        FILE *file = fopen(path, "rb");
        size_t read = file ? fread(got, 1, sizeof got, file) : 0;
        if (file) fclose(file);
        expect(read == size && memcmp(got, want, size) == 0, "%zu bytes: %.*s", read, (int)length, (char *)got + 8);
        nn_safetensors_item swapped = items[0];
        items[0] = items[3], items[3] = swapped;
        pairs[0] = (nn_safetensors_pair){"a", "1"}, pairs[1] = (nn_safetensors_pair){"b", "2"};
    }
    expect(items[0].dtype == NN_SAFETENSORS_BOOL, "the caller's list was sorted");
}

/* ---- What cannot be written ------------------------------------------------------------------------------------- */

static void refuse(const char *path, const nn_safetensors_item *items, size_t count, const nn_safetensors_pair *pairs,
                   size_t pair_count, const char *says)
{
    char error[500] = "";
    bool ok = !nn_safetensors_write(path, items, count, pairs, pair_count, error, sizeof error);
    expect(!ok, "was written, but should be refused: %s", says);
    expect(strncmp(error, path, strlen(path)) == 0 && strcmp(error + strlen(path), says) == 0, "'%s', not '%s%s'",
           error, path, says);
}

TEST(bad_items_are_refused_and_the_old_file_stays)
{
    static const float w[2] = {1, 2};
    static const int64_t one[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, minus[1] = {-1};
    static const int64_t huge[3] = {INT64_C(1) << 40, INT64_C(1) << 40, 0}, most[1] = {INT64_MAX};
    const char *path = in_folder("old.safetensors");
    if (!saved(path, 3)) return;
    struct {
        nn_safetensors_item a, b;
        nn_safetensors_pair pairs[2];
        const char *says;
    } bad[] = {
        {.a.name = "\xff", .a.data = w, .says = ": \"?\" is not UTF-8"},
        {.a.name = "__metadata__", .a.data = w, .says = ": a tensor must not be named \"__metadata__\""},
        {.a.name = "x", .a.data = NULL, .says = ": tensor \"x\" has no data"},
        {.a.name = "b", .a.dtype = NN_SAFETENSORS_BOOL, .a.data = w, .says = ": tensor \"b\" occurs twice"},
        {.a = nn_safetensors_item_dense("x", NN_SAFETENSORS_F32, 9, one, w),
         .says = ": tensor \"x\" has 9 axes, more than 8"},
        {.a = nn_safetensors_item_dense("x", NN_SAFETENSORS_F32, 1, minus, w),
         .says = ": tensor \"x\" has an invalid size"},
        {.a = nn_safetensors_item_dense("x", NN_SAFETENSORS_F32, 3, huge, w),
         .says = ": tensor \"x\" has an invalid size"},
        {.a.name = "x", .a.data = w, .pairs = {{"k", "1"}, {"k", "2"}}, .says = ": metadata \"k\" occurs twice"},
        {.a.name = "x", .a.data = w, .pairs = {{"k", "\xc3"}, {"l", ""}}, .says = ": \"?\" is not UTF-8"},
        {.a.name = "x", .a.data = w, .pairs = {{"\x80", ""}, {"l", ""}}, .says = ": \"?\" is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nn_safetensors_item items[2] = {bad[i].a, {.name = "b", .dtype = NN_SAFETENSORS_F32, .data = w}};
        refuse(path, items, 2, bad[i].pairs, bad[i].pairs[0].key ? 2 : 0, bad[i].says);
        expect(kind_of(path) == 3 && leftovers(false) == 0, "case %zu touched the folder", i);
    }
    nn_safetensors_item two[2] = {nn_safetensors_item_dense("a", NN_SAFETENSORS_U8, 1, most, w),
                                  nn_safetensors_item_dense("b", NN_SAFETENSORS_U8, 1, most, w)};
    refuse(path, two, 2, NULL, 0, ": the tensors do not fit 63 bits");
    expect(kind_of(path) == 3 && leftovers(false) == 0, "the folder was touched");
    unlink(path);
}

TEST(no_memory_is_an_error_wherever_it_strikes)
{
    for (int on = 0; on < 2; on++) {
        long step = 0;
        if (!saved(in_folder("m.safetensors"), 2)) return;
        for (;; step++) {
            char error[400] = "";
            fail_after = step;
            fail_on = on;
            struck = false;
            bool ok = save(in_folder("m.safetensors"), 3, error, sizeof error);
            fail_after = -1;
            if (!struck || step > 100) break;
            expect(!ok && strstr(error, " memory"), "allocation %ld: '%s'", step, error);
            expect(kind_of(in_folder("m.safetensors")) == 2 && leftovers(true) == 0, "allocation %ld: changed", step);
        }
        expect(step >= 4 && step < 100, "it took %ld allocations", step);
        expect(kind_of(in_folder("m.safetensors")) == 3, "not written at last");
    }
    unlink(in_folder("m.safetensors"));
}

/* ---- Text ------------------------------------------------------------------------------------------------------- */

TEST(text_grows)
{
    static char want[200000], chunk[5000];
    size_t size = 0;
    nn_buffer b = {0};
    memset(chunk, 'c', sizeof chunk);
    for (int i = 0; i < 20; i++) {
        nn_buffer_printf(&b, "%d:%.*s|", i, 100 * i, chunk);
        size += (size_t)snprintf(want + size, sizeof want - size, "%d:%.*s|", i, 100 * i, chunk);
        nn_buffer_put(&b, chunk, sizeof chunk);
        memcpy(want + size, chunk, sizeof chunk);
        size += sizeof chunk;
        nn_buffer_putc(&b, '\n');
        nn_buffer_puts(&b, "");
        want[size++] = '\n';
    }
    expect(!b.failed && b.size == size && memcmp(b.bytes, want, size) == 0, "%zu bytes, not %zu", b.size, size);
    nn_buffer_free(&b);
    expect(!b.bytes && !b.size, "not empty");
    nn_buffer_printf(&b, "%*d", 9999, 1); /* at once, more than the first allocation */
    expect(b.size == 9999 && b.bytes[9998] == '1', "%zu bytes", b.size);
    nn_buffer_free(&b);
}

/* A text that has lost something is not saved, whatever is put later. */
TEST(text_that_cannot_grow_is_not_saved)
{
    const char *path = in_folder("text");
    for (int first = 0; first < 2; first++) {
        char error[400] = "";
        nn_buffer b = {0};
        if (!saved(path, 4)) return;
        if (first) nn_buffer_puts(&b, "begun");
        fail_after = 0;
        fail_on = false;
        nn_buffer_printf(&b, "%*d", 9999, 1);
        fail_after = -1;
        nn_buffer_puts(&b, "more");
        expect(b.failed && b.size == (first ? 5 : 0), "%zu bytes", b.size);
        expect(nn_buffer_save(&b, path, error, sizeof error) && strstr(error, "text: not enough memory"), "%s", error);
        expect(kind_of(path) == 4 && leftovers(true) == 0, "the old file has changed");
        nn_buffer_free(&b);
    }
    unlink(path);
}

/* ---- Errors ----------------------------------------------------------------------------------------------------- */

TEST(an_error_buffer_of_any_size_will_do)
{
    char error[32];
    for (size_t room = 0; room < sizeof error; room++) {
        memset(error, '#', sizeof error);
        expect(!save("/no/such/folder/x", 1, error, room), "was written");
        expect(error[room] == '#', "wrote outside %zu bytes", room);
        if (room) expect(memchr(error, 0, room), "no end within %zu bytes", room);
    }
    expect(!save("/no/such/folder/x", 1, NULL, 0), "was written");
}
