/* Lines of JSON about a run. */
#include "train_log.h"
#include "json.h"
#include "replace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_start(FILE *out, const train_session *s)
{
    char quoted[400], value[RECIPE_WORD_MAX];
    fprintf(out, "{\"event\":\"start\",\"model\":\"vit\",\"preset\":%s,",
            json_quote(quoted, sizeof quoted, s->run->preset));
    fprintf(out, "\"data\":%s,", json_quote(quoted, sizeof quoted, s->run->set));
    fprintf(out, "\"synthetic\":%s,\"parameters\":%lld,\"steps_per_epoch\":%lld,\"recipe\":{",
            s->t->set->synthetic ? "true" : "false", (long long)s->t->count, (long long)s->t->steps_per_epoch);
    for (int n = 0; recipe_key(n); n++) {
        const char *quote = recipe_is_word(n) ? "\"" : "";
        fprintf(out, "%s\"%s\":%s%s%s", n ? "," : "", recipe_key(n), quote, recipe_get(value, &s->run->how, n), quote);
    }
    fputs("}}\n", out);
}

static void put_epoch(FILE *out, const train_session *s, int64_t n)
{
    const checkpoint_epoch *e = &s->run->epochs[n];
    fprintf(out, "{\"event\":\"epoch\",\"epoch\":%lld,\"loss\":%.9g,\"accuracy\":%.9g,", (long long)n + 1,
            e->loss / e->images, e->correct / e->images);
    if (e->held_out > 0)
        fprintf(out, "\"held_out_loss\":%.9g,\"held_out_accuracy\":%.9g,", e->held_loss, e->held_correct / e->held_out);
    fprintf(out, "\"lr\":%.9g,\"images_per_second\":%.0f,\"seconds\":%.3f}\n", e->rate,
            e->seconds > 0 ? e->images / e->seconds : 0, e->seconds + e->other_seconds);
}

static void put_end(FILE *out, const train_session *s, const train_end *end)
{
    char quoted[1000];
    fprintf(out,
            "{\"event\":\"end\",\"test_images\":%lld,\"test_loss\":%.9g,\"test_accuracy\":%.9g,\"parameters\":%lld,"
            "\"seconds\":%.3f,\"peak_kib\":%ld,\"file\":%s}\n",
            (long long)end->test.count, end->test.loss, (double)end->test.correct / (double)end->test.count,
            (long long)s->t->count, end->seconds, end->peak_kib, json_quote(quoted, sizeof quoted, s->out));
}

bool train_log_begin(const train_session *s, char *error, size_t error_size)
{
    char *text = NULL;
    size_t size = 0;
    replacement to;
    FILE *out = open_memstream(&text, &size);
    if (out) {
        put_start(out, s);
        for (int64_t n = 0; n < s->t->step / s->t->steps_per_epoch; n++) put_epoch(out, s, n);
    }
    bool good = out && fclose(out) == 0;
    replacement_begin(&to, s->log, error, error_size);
    if (good) replacement_put(&to, text, size);
    else replacement_fail(&to, "no memory");
    free(text);
    return replacement_end(&to);
}

/* The line is written at once, so that whoever reads along gets all of it or nothing. */
static bool append(const train_session *s, int64_t n, const train_end *end, char *error, size_t error_size)
{
    FILE *out = fopen(s->log, "a");
    if (out && end) put_end(out, s, end);
    else if (out) put_epoch(out, s, n);
    bool lost = out && ferror(out);
    if (out && fclose(out) == 0 && !lost) return true;
    snprintf(error, error_size, "%s: %s", s->log, strerror(errno));
    return false;
}

bool train_log_epoch(const train_session *s, int64_t n, char *error, size_t error_size)
{
    return append(s, n, NULL, error, error_size);
}

bool train_log_end(const train_session *s, const train_end *end, char *error, size_t error_size)
{
    return append(s, 0, end, error, error_size);
}
