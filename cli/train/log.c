/* The JSON lines of --log. */
#include "cli/train/log.h"
#include "io/buffer.h"
#include "io/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void put_start(nn_buffer *out, const train_session *s)
{
    char quoted[400];
    const mha_recipe *recipe = mha_training_recipe(s->training);
    const char *key;
    nn_buffer_printf(out, "{\"event\":\"start\",\"model\":\"vit\",\"preset\":%s,",
                     nn_json_quote(quoted, sizeof quoted, mha_recipe_preset(recipe)));
    nn_buffer_printf(out, "\"data\":%s,", nn_json_quote(quoted, sizeof quoted, s->info.data));
    nn_buffer_printf(out, "\"synthetic\":%s,\"parameters\":%lld,\"steps_per_epoch\":%lld,\"recipe\":{",
                     s->about.synthetic ? "true" : "false", (long long)s->info.parameters,
                     (long long)s->info.steps_per_epoch);
    for (int64_t n = 0; (key = mha_recipe_key(recipe, n)); n++) {
        const char *quote = mha_recipe_is_word(recipe, key) ? "\"" : "";
        nn_buffer_printf(out, "%s\"%s\":%s%s%s", n ? "," : "", key, quote, mha_recipe_get(recipe, key), quote);
    }
    nn_buffer_puts(out, "}}\n");
}

static void put_epoch(nn_buffer *out, const train_session *s, int64_t n)
{
    mha_epoch_info e = train_epoch(s->ctx, s->training, n);
    double images = (double)e.examples;
    nn_buffer_printf(out, "{\"event\":\"epoch\",\"epoch\":%lld,\"loss\":%.9g,\"accuracy\":%.9g,", (long long)n + 1,
                     e.loss, (double)e.correct / images);
    if (e.held_out.count > 0)
        nn_buffer_printf(out, "\"held_out_loss\":%.9g,\"held_out_accuracy\":%.9g,", e.held_out.loss,
                         (double)e.held_out.correct / (double)e.held_out.count);
    nn_buffer_printf(out, "\"lr\":%.9g,\"images_per_second\":%.0f,\"seconds\":%.3f}\n", e.rate,
                     e.seconds > 0 ? images / e.seconds : 0, e.seconds + e.other_seconds);
}

static void put_end(nn_buffer *out, const train_session *s, const train_end *end)
{
    char quoted[1000];
    nn_buffer_printf(
        out,
        "{\"event\":\"end\",\"test_images\":%lld,\"test_loss\":%.9g,\"test_accuracy\":%.9g,\"parameters\":%lld,"
        "\"seconds\":%.3f,\"peak_kib\":%ld,\"file\":%s}\n",
        (long long)end->test.count, end->test.loss, (double)end->test.correct / (double)end->test.count,
        (long long)s->info.parameters, end->seconds, end->peak_kib, nn_json_quote(quoted, sizeof quoted, s->out));
}

bool train_log_begin(const train_session *s, char *error, size_t error_size)
{
    nn_buffer out = {0};
    put_start(&out, s);
    for (int64_t n = 0; n < s->info.step / s->info.steps_per_epoch; n++) put_epoch(&out, s, n);
    bool written = !nn_buffer_save(&out, s->log, error, error_size);
    nn_buffer_free(&out);
    return written;
}

/* Appends a line with a single write, so that a reader of the growing file never sees part of a line. A partial line,
 * written on a full disk, is truncated again. */
static bool append_line(const char *path, const nn_buffer *line)
{
    int file = line->failed ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (line->failed) errno = ENOMEM;
    if (file < 0) return false;
    off_t end = lseek(file, 0, SEEK_END);
    errno = 0;
    bool whole = write(file, line->bytes, line->size) == (ssize_t)line->size;
    int why = errno ? errno : ENOSPC; /* a short write sets no errno */
    if (!whole && (end < 0 || ftruncate(file, end) != 0)) why = errno;
    if (close(file) != 0 && whole) return false;
    errno = why;
    return whole;
}

static bool append(const train_session *s, nn_buffer *line, char *error, size_t error_size)
{
    bool written = append_line(s->log, line);
    if (!written) snprintf(error, error_size, "%s: %s", s->log, strerror(errno));
    nn_buffer_free(line);
    return written;
}

bool train_log_epoch(const train_session *s, int64_t n, char *error, size_t error_size)
{
    nn_buffer line = {0};
    put_epoch(&line, s, n);
    return append(s, &line, error, error_size);
}

bool train_log_end(const train_session *s, const train_end *end, char *error, size_t error_size)
{
    nn_buffer line = {0};
    put_end(&line, s, end);
    return append(s, &line, error, error_size);
}
