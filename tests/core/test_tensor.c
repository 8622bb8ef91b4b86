/* Tensor helpers: sizes, strides, names. */
#include "support/harness.h"
#include <string.h>

#include <mha.h>

static void expect_tensor(mha_tensor t, const void *data, int rank, const int64_t *size, const int64_t *stride)
{
    expect(t.data == data && t.rank == rank, "rank %d, not %d", t.rank, rank);
    for (int a = 0; a < rank; a++)
        expect(t.size[a] == size[a] && t.stride[a] == stride[a], "axis %d of %d: size %d, stride %d", a, rank,
               (int)t.size[a], (int)t.stride[a]);
}

TEST(dense_views_are_row_major)
{
    const float x[1] = {0};
    expect_tensor(mha_tensor_1d(x, MHA_FLOAT32, 7), x, 1, (int64_t[]){7}, (int64_t[]){1});
    expect_tensor(mha_tensor_2d(x, MHA_BFLOAT16, 7, 5), x, 2, (int64_t[]){7, 5}, (int64_t[]){5, 1});
    expect_tensor(mha_tensor_3d(x, MHA_FLOAT16, 7, 5, 3), x, 3, (int64_t[]){7, 5, 3}, (int64_t[]){15, 3, 1});
    expect_tensor(mha_tensor_4d(x, MHA_INT64, 7, 5, 3, 2), x, 4, (int64_t[]){7, 5, 3, 2}, (int64_t[]){30, 6, 2, 1});
    expect(mha_tensor_4d(x, MHA_INT64, 1, 1, 1, 1).type == MHA_INT64, "the type is lost");
    expect_tensor(mha_tensor_2d(NULL, MHA_BOOL, 0, 5), NULL, 2, (int64_t[]){0, 5}, (int64_t[]){5, 1});
}

/* Sizes whose product does not fit are the callee's to refuse: making the view must not trap. */
TEST(views_of_impossible_size)
{
    mha_tensor t = mha_tensor_4d(NULL, MHA_FLOAT32, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX);
    expect(t.size[0] == INT64_MAX && t.size[3] == INT64_MAX, "the sizes are lost");
    t = mha_tensor_3d(NULL, MHA_FLOAT32, -1, INT64_MIN, -7);
    expect(t.size[1] == INT64_MIN, "the sizes are lost");
    mha_context *ctx;
    mha_attention_plan plan;
    expect(!mha_context_create(&ctx, NULL), "no context");
    t = mha_tensor_4d(NULL, MHA_FLOAT32, 1, INT64_C(1) << 21, INT64_C(1) << 21, INT64_C(1) << 22);
    mha_status status = mha_attention_explain(ctx, &plan, t, NULL, t, t, t, NULL);
    expect(status == MHA_TOO_LARGE, "%s: %s", mha_status_name(status), mha_context_error(ctx));
    mha_context_free(ctx);
}

TEST(swap_exchanges_axes)
{
    const float x[1] = {0};
    mha_tensor t = mha_tensor_4d(x, MHA_FLOAT32, 2, 3, 4, 5);
    expect_tensor(mha_tensor_swap(t, 1, 2), x, 4, (int64_t[]){2, 4, 3, 5}, (int64_t[]){60, 5, 20, 1});
    expect_tensor(mha_tensor_swap(t, 3, 0), x, 4, (int64_t[]){5, 3, 4, 2}, (int64_t[]){1, 20, 5, 60});
    expect_tensor(mha_tensor_swap(t, 2, 2), x, 4, t.size, t.stride);
    const int outside[][2] = {{-1, 1}, {1, 4}, {4, 4}, {INT32_MIN, INT32_MAX}, {0, 100}};
    for (int n = 0; n < 5; n++) expect_tensor(mha_tensor_swap(t, outside[n][0], outside[n][1]), x, 4, t.size, t.stride);
    mha_tensor two = mha_tensor_2d(x, MHA_FLOAT32, 2, 3);
    expect_tensor(mha_tensor_swap(two, 1, 2), x, 2, (int64_t[]){2, 3}, (int64_t[]){3, 1});
}

TEST(sizes_and_names_of_types)
{
    const size_t sizes[] = {4, 2, 2, 1, 8, 4};
    const char *names[] = {"float32", "bfloat16", "float16", "bool", "int64", "int32"};
    for (int n = 0; n < 6; n++) {
        expect(mha_type_size((mha_type)n) == sizes[n], "%s has %zu bytes", names[n], mha_type_size((mha_type)n));
        expect(!strcmp(mha_type_name((mha_type)n), names[n]), "%d is %s", n, mha_type_name((mha_type)n));
    }
    const int others[] = {-1, 6, 99, INT32_MIN, INT32_MAX};
    for (int n = 0; n < 5; n++) {
        expect(mha_type_size((mha_type)others[n]) == 0, "type %d has a size", others[n]);
        expect(!strcmp(mha_type_name((mha_type)others[n]), "unknown type"), "type %d has a name", others[n]);
    }
}

/* Rows that are longer and shorter than what a task takes, dense and turned around, on several threads. */
TEST(copies_of_every_shape)
{
    enum { MOST = 40000 };
    static const int64_t shapes[][2] = {{1, 1},     {1, 8191},  {1, 8192}, {1, 8193},
                                        {1, 40000}, {2, 20000}, {625, 64}, {13333, 3}};
    static float from[MOST], to[MOST + 1];
    mha_context *ctx;
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.threads = 3;
    expect(!mha_context_create(&ctx, &options), "no context");
    for (int64_t i = 0; i < MOST; i++) from[i] = (float)(i + 1);
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        for (int turned = 0; turned < 2; turned++) {
            int64_t rows = shapes[n][0], cols = shapes[n][1], wrong = 0;
            mha_tensor source = turned ? mha_tensor_swap(mha_tensor_2d(from, MHA_FLOAT32, cols, rows), 0, 1)
                                       : mha_tensor_2d(from, MHA_FLOAT32, rows, cols);
            memset(to, 0, sizeof to);
            mha_status status = mha_tensor_copy(ctx, mha_tensor_2d(to, MHA_FLOAT32, rows, cols), source);
            for (int64_t i = 0; i < rows * cols; i++) wrong += to[i] != from[turned ? i % cols * rows + i / cols : i];
            expect(!status && !wrong && to[rows * cols] == 0, "%s: %d of %d x %d are wrong", mha_status_name(status),
                   (int)wrong, (int)rows, (int)cols);
        }
    mha_context_free(ctx);
}

TEST(no_tensor_is_all_zero)
{
    const mha_tensor none = MHA_NO_TENSOR, zero = {0};
    expect(!none.data && none.rank == 0 && none.type == zero.type, "MHA_NO_TENSOR is not all zero");
    for (int a = 0; a < 4; a++) expect(!none.size[a] && !none.stride[a], "axis %d is not zero", a);
}
