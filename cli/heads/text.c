/* The survey of a text model for the command: opening, measuring, printing. */
#include "cli/heads/text_ablate.h"
#include "cli/common/cli.h"
#include "cli/maps/text.h"
#include "io/json.h"
#include "cli/terminal/progress.h"
#include "cli/common/language.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOWS = 64, ABLATED = 16, NEW_TOKENS = 128 };

/* ---- The survey ------------------------------------------------------------------------------------------------- */

static bool take_heads(text_survey *s, mha_context *ctx)
{
    s->info.size = sizeof s->info;
    if (mha_text_survey_about(ctx, s->of, &s->info)) return false;
    if (!(s->heads = calloc((size_t)s->info.heads, sizeof *s->heads)))
        return !mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the survey");
    for (int64_t n = 0; n < s->info.heads; n++) {
        s->heads[n].size = sizeof *s->heads;
        if (mha_text_head_get(ctx, s->of, n, &s->heads[n])) return false;
    }
    if (s->info.same) mha_text_survey_map(s->of, 0, &s->window, NULL);
    return true;
}

static bool measure_heads(text_survey *s, const texts *t, const mha_text_options *o, const heads_request *r)
{
    double start = cli_clock();
    *s = (text_survey){.pair = t->pair, .tokens = (t->frames ? t->starts[1] : t->starts[0])[t->count]};
    progress_begin("measuring the heads of %s", r->from.file);
    bool made = !mha_text_survey_make(t->ctx, &s->of, t->model, &t->of, o) && take_heads(s, t->ctx);
    progress_end();
    if (!made) return cli_error("%s: %s", r->from.file, cli_reason(t->ctx));
    s->audio = s->info.audio;
    if (s->window && !s->pair) s->unused = s->tokens - s->info.windows * (s->window - o->before_count - o->after_count);
    s->seconds = cli_clock() - start;
    return true;
}

static void free_survey(text_survey *s)
{
    mha_text_survey_free(s->of);
    free(s->heads);
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

static bool print_json(const heads_request *r, const text_survey *s, const text_ablation *a)
{
    char quoted[1200];
    nn_buffer object = {0};
    text_json(&object, s);
    if (a) nn_buffer_puts(&object, ",\n\"ablation\": "), text_ablation_json(&object, a, s);
    bool whole = !object.failed;
    if (whole) {
        printf("{\"model\": %s", nn_json_quote(quoted, sizeof quoted, r->from.file));
        printf(", \"%s\": %s,\n\"survey\": ", r->audio ? "audio" : "text",
               nn_json_quote(quoted, sizeof quoted, r->audio ? r->audio : r->text));
        fwrite(object.bytes, 1, object.size, stdout);
        printf("}\n");
    }
    nn_buffer_free(&object);
    return whole || cli_error("not enough memory for the JSON");
}

static bool print_survey(const heads_request *r, const text_survey *s, const text_ablation *a)
{
    char error[600];
    if (r->format != MAPS_TERMINAL &&
        !maps_of_text(r->out, r->format, r->from.file, s->of, &s->info, s->heads, error, sizeof error))
        return cli_error("%s", error);
    if (r->json) return print_json(r, s, a);
    term t = term_detect(r->when);
    if (r->format != MAPS_TERMINAL)
        cli_print(stdout, "wrote the maps of %lld head%s to %s\n", (long long)s->info.heads, plural(s->info.heads),
                  r->out);
    else if (!text_table(&t, s, r->sort, r->from.file, r->audio ? r->audio : language_name(r->text)) ||
             (a && !text_ablation_table(&t, a, s)))
        return cli_error("not enough memory for the table");
    return true;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

/* view's --text is the text itself, so it is easily given here, too. Prints an error and returns false. */
static bool names_file(const char *text)
{
    if (!strcmp(text, "-") || !access(text, F_OK) || errno != ENOENT) return true;
    return cli_refuse("--text names a file with the text, and there is none called '%s'", text);
}

/* Reads the text, or the sound, into `t`. */
static bool read_input(const heads_request *r, texts *t)
{
    size_t length = 0, target_length = 0;
    if (r->audio) return texts_hear(t, r->audio);
    char *text = names_file(r->text) ? texts_read(r->text, &length) : NULL;
    char *target = text && r->target ? texts_read(r->target, &target_length) : NULL;
    bool ok = text && (target || !r->target) &&
              texts_take(t, text, length, language_name(r->text), target, target_length, r->target);
    free(text);
    free(target);
    return ok;
}

static bool survey_text(const heads_request *r, texts *t)
{
    mha_text_options o = MHA_TEXT_DEFAULTS;
    text_survey s = {0};
    text_ablation a = {0};
    bool ok = read_input(r, t);
    if (ok) texts_options(t, &o);
    o.window = r->window;
    o.windows = r->sample ? r->sample : r->ablate ? ABLATED : WINDOWS;
    o.seed = r->seed;
    ok = ok && measure_heads(&s, t, &o, r) && (!r->ablate || text_ablation_make(&a, t, &o, &s, r->from.file)) &&
         print_survey(r, &s, r->ablate ? &a : NULL);
    text_ablation_free(&a);
    free_survey(&s);
    return ok;
}

bool text_heads(const heads_request *r, session *s)
{
    texts t = {0};
    texts_from from = {.model = r->from.file,
                       .tokenizer = r->tokenizer,
                       .lines = r->sample ? r->sample : WINDOWS,
                       .new_tokens = r->window ? r->window : NEW_TOKENS,
                       .audio = r->audio != NULL};
    bool ok = texts_open(&t, s->ctx, s->model, &from) && survey_text(r, &t);
    texts_close(&t);
    return ok;
}
