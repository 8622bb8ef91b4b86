/* What a model is: the lines above the tree. */
#include "cli/common/cli.h"
#include "cli/inspect/inspect.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LABEL = 12, NAMES = 3, CLASSES = 6 };

__attribute__((format(printf, 3, 4))) static void put_row(const term *t, const char *what, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fputs("  ", stdout);
    term_left(t, LABEL, TERM_FAINT, what);
    cli_print(stdout, "%s\n", text);
}

/* ---- Input and output ------------------------------------------------------------------------------------------- */

static void put_input(const mha_model_info *i, const term *t)
{
    if (i->patch) {
        put_row(t, "input", "images of %lld x %lld x %lld in patches of %lld x %lld", (long long)i->channels,
                (long long)i->rows, (long long)i->columns, (long long)i->patch, (long long)i->patch);
        put_row(t, "", "%lld tokens%s", (long long)i->tokens, i->class_token ? ", the first a class token" : "");
    } else if (i->frames)
        put_row(t, "input", "audio: %lld frames of %lld mel bins", (long long)i->frames, (long long)i->bins);
    else if (i->positions)
        put_row(t, "input", "tokens of a vocabulary of %lld, at most %lld", (long long)i->vocabulary,
                (long long)i->positions);
    else put_row(t, "input", "tokens of a vocabulary of %lld", (long long)i->vocabulary);
    if (i->context && !i->positions && i->vocabulary)
        put_row(t, "", "made for up to %lld tokens", (long long)i->context);
}

/* A list of names with commas, of which the first few are spelled out. */
static void list_names(char *out, size_t room, const char *(*name)(const mha_model *, int64_t), const mha_model *m,
                       int64_t most)
{
    size_t at = 0;
    int64_t count = 0;
    out[0] = 0;
    while (name(m, count)) count++;
    for (int64_t n = 0; n < count && n < most && at < room; n++)
        at += (size_t)snprintf(out + at, room - at, "%s%.100s", n ? ", " : "", name(m, n));
    if (count > most && at < room) snprintf(out + at, room - at, " and %lld more", (long long)(count - most));
}

static void put_output(const session *s, const term *t)
{
    const mha_model_info *i = &s->about;
    char names[400];
    list_names(names, sizeof names, mha_model_label, s->model, CLASSES);
    if (!i->head) put_row(t, "output", "the rows of the last block, %lld numbers each", (long long)i->width);
    else if (!i->pooled) put_row(t, "output", "logits of %lld tokens at every position", (long long)i->classes);
    else
        put_row(t, "output", "%lld class%s%s%s", (long long)i->classes, i->classes == 1 ? "" : "es", *names ? ": " : "",
                names);
}

/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

/* The first parameter of that name in the first block of the stack. */
static mha_model_parameter find_parameter(const mha_model *m, bool decoder, const char *name)
{
    char full[120];
    snprintf(full, sizeof full, "%s.blocks.0.%s", decoder ? "decoder" : "encoder", name);
    return mha_model_parameter_find(m, full);
}

static void put_mlp(const session *s, const term *t, bool decoder)
{
    const mha_model_info *i = &s->about;
    mha_model_parameter router = find_parameter(s->model, decoder, "mlp.router.weight");
    bool gated = find_parameter(s->model, decoder, "mlp.gate.weight").name ||
                 find_parameter(s->model, decoder, "0.mlp.gate.weight").name;
    if (router.name)
        put_row(t, "", "%lld experts, each an MLP of width %lld, %sactivation %s", (long long)router.tensor.size[0],
                (long long)i->mlp, gated ? "gated, " : "", i->activation);
    else put_row(t, "", "MLP of width %lld, %sactivation %s", (long long)i->mlp, gated ? "gated, " : "", i->activation);
}

static void put_blocks(const session *s, const term *t)
{
    const mha_model_info *i = &s->about;
    char heads[MODEL_WORDS];
    bool pair = i->encoder_blocks > 0;
    if (pair) {
        mha_model_attention a = mha_model_attention_get(s->model, 0);
        put_row(t, "encoder", "%lld block%s of width %lld, with %s of width %lld", (long long)i->encoder_blocks,
                plural(i->encoder_blocks), (long long)i->encoder_width, model_heads_words(heads, s->model, false),
                (long long)a.width);
    }
    mha_model_attention a = mha_model_attention_get(s->model, i->encoder_blocks);
    put_row(t, pair ? "decoder" : "blocks",
            pair ? "%lld blocks of width %lld, with %s of width %lld%s" : "%lld of width %lld, with %s of width %lld%s",
            (long long)i->blocks, (long long)i->width, model_heads_words(heads, s->model, true), (long long)a.width,
            i->causal ? ", causal" : "");
    put_mlp(s, t, pair || i->decoder_only);
    put_row(t, "", "%s norm %s each branch%s, epsilon %g", i->norm, i->norm_place,
            i->final_norm ? " and at the end" : "", (double)i->epsilon);
}

/* ---- What lies beside it ---------------------------------------------------------------------------------------- */

/* Numbers and bytes of all parameters, and the types of their matrices. */
static void put_parameters(const session *s, const term *t)
{
    char count[INSPECT_NUMBER], bytes[INSPECT_NUMBER], types[60] = "";
    bool seen[16] = {false};
    int64_t all = 0;
    for (int64_t n = 0; n < mha_model_parameter_count(s->model); n++) {
        mha_model_parameter p = mha_model_parameter_get(s->model, n);
        size_t used = strlen(types);
        if (p.same < 0) all += inspect_numbers(&p.tensor) * (int64_t)mha_type_size(p.tensor.type);
        if (p.tensor.rank < 2 || !p.tensor.data || seen[p.tensor.type % 16]) continue;
        if (strcmp(mha_model_parameter_place(s->model, n).part, "input") == 0) continue; /* may be copies in float32 */
        seen[p.tensor.type % 16] = true;
        snprintf(types + used, sizeof types - used, "%s%s", used ? ", " : "", mha_type_name(p.tensor.type));
    }
    put_row(t, "parameters", "%s, %s bytes, %s", inspect_commas(count, s->about.parameters), inspect_commas(bytes, all),
            types);
}

static void put_tokenizer(const session *s, const term *t, const inspect_tokenizer *k)
{
    if (!s->about.vocabulary && !s->about.frames) return;
    if (!k->there) put_row(t, "tokenizer", "%s", *k->problem ? k->problem : "none beside the model");
    else put_row(t, "tokenizer", "%s of %lld tokens (%s)", k->about.kind, (long long)k->about.tokens, k->about.format);
}

void inspect_print_about(const session *s, const term *t, const inspect_tokenizer *k)
{
    char names[400];
    put_row(t, "file", "%s", s->from->file);
    if (s->about.text_of)
        put_row(t, "family", "%s: the text model of a %s checkpoint; what reads pictures is left out", s->about.family,
                s->about.text_of);
    else put_row(t, "family", "%s", s->about.family);
    put_input(&s->about, t);
    put_blocks(s, t);
    put_output(s, t);
    put_parameters(s, t);
    put_tokenizer(s, t, k);
    list_names(names, sizeof names, mha_model_missing, s->model, NAMES);
    if (*names) put_row(t, "missing", "%s", names);
    list_names(names, sizeof names, mha_model_unused, s->model, NAMES);
    if (*names) put_row(t, "left over", "%s", names);
}
