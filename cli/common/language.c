#include "cli/common/language.h"
#include "cli/common/tokenizer.h"
#include "io/printable.h"
#include "io/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Texts ------------------------------------------------------------------------------------------------------ */

bool language_add(language_texts *t, const char *text, size_t length)
{
    char **more = realloc(t->all, (size_t)(t->count + 1) * sizeof *more), *copy = malloc(length + 1);
    if (more) t->all = more;
    if (!more || !copy) {
        free(copy);
        return cli_refuse("not enough memory for the texts");
    }
    memcpy(copy, text, length);
    copy[length] = 0;
    t->all[t->count++] = copy;
    return true;
}

void language_free(language_texts *t)
{
    for (int64_t n = 0; n < t->count; n++) free(t->all[n]);
    free(t->all);
    *t = (language_texts){0};
}

bool language_add_lines(language_texts *t, const char *path, const char *what)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    bool standard = strcmp(path, "-") == 0, good = true;
    FILE *file = standard ? stdin : fopen(path, "rb");
    if (!file) return cli_refuse("cannot open '%s': %s", path, strerror(errno));
    int64_t before = t->count;
    while (good && (length = getline(&line, &room, file)) > 0) {
        while (length && (line[length - 1] == '\n' || line[length - 1] == '\r')) length--;
        if (memchr(line, 0, (size_t)length)) good = cli_refuse("%s: has a NUL byte; is it a text?", path);
        else if (length) good = language_add(t, line, (size_t)length);
    }
    if (good && !feof(file)) good = cli_refuse("cannot read '%s': %s", path, strerror(errno));
    if (good && t->count == before) good = cli_refuse("%s: has no %s; it needs one on each line", path, what);
    free(line);
    if (!standard) fclose(file);
    return good;
}

const char *language_name(const char *path) { return strcmp(path, "-") == 0 ? "standard input" : path; }

bool language_read(nn_buffer *out, const char *path)
{
    char block[1 << 14];
    size_t n;
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    if (!file) return cli_refuse("cannot open '%s': %s", path, strerror(errno));
    while ((n = fread(block, 1, sizeof block, file)) > 0) nn_buffer_put(out, block, n);
    bool good = !ferror(file) && !out->failed;
    if (ferror(file)) cli_refuse("cannot read '%s': %s", path, strerror(errno));
    else if (out->failed) cli_refuse("not enough memory for '%s'", path);
    if (!standard) fclose(file);
    return good;
}

bool language_ids(const cli_given *given, int32_t *ids, int64_t *count)
{
    const char *text = given->value;
    int64_t before = *count;
    while (*(text += strspn(text, " ,\t\n"))) {
        char *end;
        errno = 0;
        long long id = strtoll(text, &end, 10);
        if (errno || end == text || !strchr(" ,\t\n", *end) || id < 0 || id > INT32_MAX)
            return cli_refuse("%s: '%.20s' is not an id; ids are numbers separated by spaces or commas", given->name,
                              text);
        ids[(*count)++] = (int32_t)id;
        text = end;
    }
    return *count > before || cli_refuse("%s: there is no id", given->name);
}

/* ---- The tokenizer ---------------------------------------------------------------------------------------------- */

bool language_tokenizer(mha_context *ctx, mha_tokenizer **tokenizer, const char *model, const char *given)
{
    return tokenizer_open(tokenizer, ctx, model, given, false) || cli_error("%s", cli_reason(ctx));
}

bool language_fits(mha_context *ctx, const mha_tokenizer *tokenizer, int64_t vocabulary, bool quiet)
{
    mha_tokenizer_info about = {.size = sizeof about};
    if (mha_tokenizer_about(ctx, tokenizer, &about)) return cli_refuse("%s", cli_reason(ctx));
    enum { PADDING = 1024 };
    int64_t more = about.tokens - vocabulary;
    if (more > vocabulary / 32 || (-more > vocabulary / 32 && -more > PADDING))
        return cli_refuse("the tokenizer has %lld tokens, but the model %lld; is it that of the model?",
                          (long long)about.tokens, (long long)vocabulary);
    if (-more > vocabulary / 32 && !quiet)
        cli_print(stderr, "note: the tokenizer has %lld tokens, the model %lld; is it that of the model?\n",
                  (long long)about.tokens, (long long)vocabulary);
    return true;
}

int32_t language_mask(mha_context *ctx, const mha_tokenizer *tokenizer)
{
    static const char *const names[] = {"[MASK]", "<mask>"};
    mha_tokenizer_info about = {.size = sizeof about, .mask = -1};
    if (!mha_tokenizer_about(ctx, tokenizer, &about) && about.mask >= 0) return about.mask;
    for (int n = 0; n < 2; n++) {
        int32_t id = mha_tokenizer_id(tokenizer, names[n]);
        if (id >= 0 && mha_tokenizer_is_special(tokenizer, id)) return id;
    }
    return -1;
}

/* ---- Probabilities ---------------------------------------------------------------------------------------------- */

double language_log_sum(const float *logits, int64_t count)
{
    double most = (double)logits[0], sum = 0;
    for (int64_t c = 1; c < count; c++) /* not fmax: gcc 12 fails on that loop on Arm */
        if ((double)logits[c] > most) most = (double)logits[c];
    for (int64_t c = 0; c < count; c++) sum += exp((double)logits[c] - most);
    return log(sum) + most;
}

/* ---- Generated texts -------------------------------------------------------------------------------------------- */

const char *const language_finishes[] = {"none", "end", "stop", "length", "cancelled"};

bool language_show(const char *text, size_t length)
{
    if (!isatty(STDOUT_FILENO)) return fwrite(text, 1, length, stdout) == length && !fflush(stdout);
    const unsigned char *p = (const unsigned char *)text;
    for (size_t at = 0; at < length;) {
        char one[8] = "", shown[32];
        int n = nn_printable_utf8(p + at, length - at);
        memcpy(one, text + at, (size_t)(n ? n : 1));
        if (one[0] == '\n' || one[0] == '\t') putchar(one[0]);
        else fputs(nn_printable(shown, sizeof shown, one), stdout);
        at += (size_t)(n ? n : 1);
    }
    return !fflush(stdout) && !ferror(stdout);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

void language_quote(nn_buffer *out, const char *text, size_t length)
{
    nn_buffer_putc(out, '"');
    for (size_t at = 0; at < length;) {
        nn_json_character c;
        at += nn_json_escape(&c, text + at, length - at);
        nn_buffer_puts(out, c.text);
    }
    nn_buffer_putc(out, '"');
}

bool language_put(nn_buffer *out)
{
    bool good = !out->failed || cli_refuse("not enough memory for the output");
    if (good && out->size) fwrite(out->bytes, 1, out->size, stdout);
    nn_buffer_free(out);
    return good;
}
