#include "cli/view/train.h"
#include "cli/common/cli.h"
#include "cli/common/data.h"
#include "cli/view/page.h"
#include "io/gzip.h"

#include <inttypes.h>
#include <stdio.h>

/* Digits in the page: as many as are learned in a minute, and as many as tell one percent from another. */
enum { TRAIN_DIGITS = 2000, TEST_DIGITS = 500, PATCH = 7 };

/* A field with bytes, packed if they can be. */
static void put_bytes(nn_buffer *out, const char *name, const nn_buffer *bytes, bool packed)
{
    nn_buffer gzipped = {0};
    nn_buffer_printf(out, ",\"%s\":", name);
    if (packed && nn_gzip(&gzipped, bytes->bytes, bytes->size)) out->failed = true;
    if (packed) view_base64(out, gzipped.bytes, gzipped.size);
    else view_base64(out, bytes->bytes, bytes->size);
    if (bytes->failed) out->failed = true;
    nn_buffer_free(&gzipped);
}

/* Images and labels of a part, at most `most`. Returns how many. */
static int64_t put_part(nn_buffer *out, const mha_data *data, mha_data_part part, int64_t most, size_t pixels,
                        bool packed)
{
    nn_buffer images = {0}, labels = {0};
    int64_t n = 0;
    for (; n < most && mha_data_image(data, part, n); n++) {
        nn_buffer_put(&images, mha_data_image(data, part, n), pixels);
        nn_buffer_putc(&labels, (char)mha_data_label(data, part, n));
    }
    nn_buffer_printf(out, "{\"count\":%" PRId64, n);
    put_bytes(out, "images", &images, packed);
    put_bytes(out, "labels", &labels, packed);
    nn_buffer_puts(out, "}");
    nn_buffer_free(&images);
    nn_buffer_free(&labels);
    return n;
}

static bool can_pack(void)
{
    nn_buffer trial = {0};
    bool packs = !nn_gzip(&trial, "", 1);
    nn_buffer_free(&trial);
    return packs;
}

bool view_train_write(const char *page, mha_context *ctx, const char *folder, size_t *bytes, char *about, size_t room)
{
    char error[600];
    nn_buffer out = {0};
    mha_data *data = data_open(ctx, folder, false);
    if (!data) return false;
    mha_data_info d = data_about(ctx, data);
    bool packed = can_pack(), ok = true;
    const char *title = d.synthetic ? "synthetic digits" : view_title(d.name);
    if (d.rows % PATCH || d.columns % PATCH || d.classes > 10)
        ok = cli_refuse("--train needs images whose sides are multiples of %d, in at most 10 classes, not %" PRId64
                        " x %" PRId64 " in %" PRId64,
                        PATCH, d.columns, d.rows, d.classes);
    if (ok && !view_engine_size)
        ok = cli_refuse("--train needs the page's engine: clang for WebAssembly was missing when this mha was built");
    if (ok) {
        nn_buffer_puts(&out, "{\"kind\":\"train\",\"title\":");
        view_name(&out, title);
        nn_buffer_printf(&out, ",\"version\":\"mha %s\",\"packed\":%s,\"patch\":%d", mha_version(),
                         packed ? "true" : "false", PATCH);
        nn_buffer_printf(&out,
                         ",\"rows\":%" PRId64 ",\"columns\":%" PRId64 ",\"classes\":%" PRId64 ",\n\"train\":", d.rows,
                         d.columns, d.classes);
        int64_t train = put_part(&out, data, MHA_DATA_TRAIN, TRAIN_DIGITS, (size_t)(d.rows * d.columns), packed);
        nn_buffer_puts(&out, ",\n\"test\":");
        int64_t test = put_part(&out, data, MHA_DATA_TEST, TEST_DIGITS, (size_t)(d.rows * d.columns), packed);
        nn_buffer_puts(&out, "}");
        snprintf(about, room, "%" PRId64 " digits to learn from, %" PRId64 " to test with", train, test);
        ok = view_page_write(page, title, &out, VIEW_ENGINE, bytes, error, sizeof error) || cli_error("%s", error);
    }
    nn_buffer_free(&out);
    mha_data_free(data);
    return ok;
}
