/* Normalizers and pre-tokenizers of a tokenizer.json. Each component becomes one or more steps (text/steps.h). */
#include "text/files/load.h"

#include <stdlib.h>
#include <string.h>

/* The status of a step that was just added. */
static mha_status made(nn_load *l, const nn_step *step) { return step ? MHA_OK : nn_load_memory(l); }

static mha_status needs_unicode(nn_load *l, const nn_fields *f)
{
    if (nn_unicode_available()) return MHA_OK;
    return nn_error(&l->to, MHA_BAD_FILE, "%s needs utf8proc, which this build does not have", f->where);
}

/* A step with fixed settings. */
static mha_status put_edit(nn_load *l, const nn_fields *f, nn_steps *s, nn_edit *edit, nn_char_class *is)
{
    TRY(needs_unicode(l, f));
    nn_step *step = nn_steps_edit(s, edit);
    if (step) step->is = is;
    return made(l, step);
}

static mha_status put_class(nn_load *l, const nn_fields *f, nn_steps *s, nn_char_class *is, nn_behavior behavior)
{
    if (is != nn_is_space) TRY(needs_unicode(l, f));
    nn_step *step = nn_steps_cut(s, nn_cut_class);
    if (step) {
        step->is = is;
        step->behavior = behavior;
    }
    return made(l, step);
}

/* ---- Normalizers ------------------------------------------------------------------------------------------------- */

static mha_status normal_form(nn_load *l, const nn_fields *f, nn_steps *s, bool compose, bool compatible)
{
    TRY(put_edit(l, f, s, nn_edit_normalize, NULL));
    s->at[s->count - 1].compose = compose;
    s->at[s->count - 1].compatible = compatible;
    return MHA_OK;
}

static mha_status nfc(nn_load *l, const nn_fields *f, void *s) { return normal_form(l, f, s, true, false); }
static mha_status nfd(nn_load *l, const nn_fields *f, void *s) { return normal_form(l, f, s, false, false); }
static mha_status nfkc(nn_load *l, const nn_fields *f, void *s) { return normal_form(l, f, s, true, true); }
static mha_status nfkd(nn_load *l, const nn_fields *f, void *s) { return normal_form(l, f, s, false, true); }
static mha_status lowercase(nn_load *l, const nn_fields *f, void *s) { return put_edit(l, f, s, nn_edit_lower, NULL); }
static mha_status strip_accents(nn_load *l, const nn_fields *f, void *s)
{
    return put_edit(l, f, s, nn_edit_drop, nn_is_mark);
}

static mha_status nmt(nn_load *l, const nn_fields *f, void *s)
{
    (void)f;
    return made(l, nn_steps_edit(s, nn_edit_nmt));
}

static mha_status byte_normalizer(nn_load *l, const nn_fields *f, void *s)
{
    (void)f;
    return made(l, nn_steps_edit(s, nn_edit_bytes));
}

static mha_status strip(nn_load *l, const nn_fields *f, void *s)
{
    nn_step *step = nn_steps_edit(s, nn_edit_strip);
    TRY(made(l, step));
    TRY(nn_fields_need(f, "strip_left"));
    TRY(nn_fields_need(f, "strip_right"));
    TRY(nn_fields_bool(f, "strip_left", &step->left));
    return nn_fields_bool(f, "strip_right", &step->right);
}

static mha_status replace(nn_load *l, const nn_fields *f, void *s)
{
    nn_step *step = nn_steps_edit(s, nn_edit_replace);
    TRY(made(l, step));
    TRY(nn_load_pattern(l, f, &step->pattern));
    TRY(nn_fields_need(f, "content"));
    return nn_fields_text(f, "content", &step->content, &step->content_size);
}

static mha_status prepend(nn_load *l, const nn_fields *f, void *s)
{
    nn_step *step = nn_steps_edit(s, nn_edit_insert);
    TRY(made(l, step));
    TRY(nn_fields_need(f, "prepend"));
    return nn_fields_text(f, "prepend", &step->content, &step->content_size);
}

static mha_status bert_normalizer(nn_load *l, const nn_fields *f, void *s)
{
    bool clean = true, ideographs = true, lower = true;
    TRY(nn_fields_bool(f, "clean_text", &clean));
    TRY(nn_fields_bool(f, "handle_chinese_chars", &ideographs));
    TRY(nn_fields_bool(f, "lowercase", &lower));
    bool accents = lower; /* stripped, unless the file says otherwise */
    TRY(nn_fields_bool(f, "strip_accents", &accents));
    if (clean) TRY(put_edit(l, f, s, nn_edit_clean, NULL));
    if (ideographs) TRY(put_edit(l, f, s, nn_edit_ideograph, NULL));
    if (accents) TRY(nfd(l, f, s));
    if (accents) TRY(put_edit(l, f, s, nn_edit_drop, nn_is_nonspacing));
    return lower ? lowercase(l, f, s) : MHA_OK;
}

static mha_status precompiled(nn_load *l, const nn_fields *f, void *s)
{
    char *text = NULL;
    size_t size = 0;
    const char *why = "";
    if (!nn_fields_find(f, "precompiled_charsmap")) return MHA_OK; /* a table without rules */
    TRY(needs_unicode(l, f));
    TRY(nn_fields_text(f, "precompiled_charsmap", &text, &size));
    nn_step *step = size ? nn_steps_edit(s, nn_edit_precompiled) : NULL;
    mha_status status = step ? nn_precompiled_base64(&step->precompiled, text, size, &why) : MHA_OK;
    free(text);
    if (size && !step) return nn_load_memory(l);
    return status ? nn_error(&l->to, status, "%s: %s", f->where, why) : MHA_OK;
}

static const nn_component normalizers[] = {
    {"Sequence", "type normalizers", NULL},
    {"NFC", "type", nfc},
    {"NFD", "type", nfd},
    {"NFKC", "type", nfkc},
    {"NFKD", "type", nfkd},
    {"Lowercase", "type", lowercase},
    {"StripAccents", "type", strip_accents},
    {"Strip", "type strip_left strip_right", strip},
    {"Replace", "type pattern content", replace},
    {"Prepend", "type prepend", prepend},
    {"BertNormalizer", "type clean_text handle_chinese_chars strip_accents lowercase", bert_normalizer},
    {"Precompiled", "type precompiled_charsmap", precompiled},
    {"Nmt", "type", nmt},
    {"ByteLevel", "type", byte_normalizer},
    {NULL, NULL, NULL},
};

mha_status nn_load_normalizer(nn_load *l, const nn_json *at, nn_steps *steps)
{
    return at ? nn_load_component(l, at, "normalizer", normalizers, steps) : MHA_OK;
}

/* ---- Pre-tokenizers ---------------------------------------------------------------------------------------------- */

static mha_status behavior_of(nn_load *l, const nn_fields *f, nn_behavior *behavior)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    enum { NAMES = sizeof names / sizeof *names };
    char *name = NULL;
    int i = 0;
    mha_status status = MHA_OK;
    TRY(nn_fields_text(f, "behavior", &name, NULL));
    if (!name) return MHA_OK;
    while (i < NAMES && strcmp(name, names[i]) != 0) i++;
    if (i < NAMES) *behavior = (nn_behavior)i;
    else
        status = nn_error(&l->to, MHA_BAD_FILE, "the behavior %s of %s is not supported", nn_json_brief(name).text,
                          f->where);
    free(name);
    return status;
}

static mha_status split(nn_load *l, const nn_fields *f, void *s)
{
    nn_step *step = nn_steps_cut(s, nn_cut_pattern);
    TRY(made(l, step));
    TRY(nn_load_pattern(l, f, &step->pattern));
    TRY(nn_fields_need(f, "behavior"));
    TRY(behavior_of(l, f, &step->behavior));
    return nn_fields_bool(f, "invert", &step->invert);
}

static char *copy(const char *text) { return strdup(text); }

/* GPT-2's split into words. */
static const char words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static mha_status insert_first(nn_load *l, nn_steps *s, const char *content, bool first)
{
    nn_step *step = nn_steps_edit(s, nn_edit_insert);
    if (!step || !(step->content = copy(content))) return nn_load_memory(l);
    step->content_size = strlen(content);
    step->unless = true;
    step->first = first;
    s->track = s->track || first;
    return MHA_OK;
}

mha_status nn_load_bytes(nn_load *l, nn_steps *s, const char *where, bool prefix_space, bool split_words)
{
    char error[200];
    if (prefix_space) TRY(insert_first(l, s, " ", false));
    if (split_words) {
        nn_step *step = nn_steps_cut(s, nn_cut_pattern);
        if (!step) return nn_load_memory(l);
        step->behavior = NN_ISOLATED;
        if (!(step->pattern.text = copy(words))) return nn_load_memory(l);
        mha_status status = nn_expression_compile(&step->pattern.expression, words, error, sizeof error);
        if (status) return nn_error(&l->to, status, "%s: %s", where, error);
    }
    return made(l, nn_steps_edit(s, nn_edit_bytes));
}

static mha_status byte_level(nn_load *l, const nn_fields *f, void *s)
{
    bool prefix = true, trim = true, use = true;
    TRY(nn_fields_bool(f, "add_prefix_space", &prefix));
    TRY(nn_fields_bool(f, "trim_offsets", &trim));
    TRY(nn_fields_bool(f, "use_regex", &use));
    return nn_load_bytes(l, s, f->where, prefix, use);
}

/* prepend_scheme, and its older spelling add_prefix_space. */
static mha_status prepend_scheme(nn_load *l, const nn_fields *f, bool *insert, bool *first)
{
    char *scheme = NULL;
    bool prefix = true;
    mha_status status = MHA_OK;
    TRY(nn_fields_bool(f, "add_prefix_space", &prefix));
    TRY(nn_fields_text(f, "prepend_scheme", &scheme, NULL));
    *insert = scheme ? strcmp(scheme, "never") != 0 : prefix;
    *first = scheme && strcmp(scheme, "first") == 0;
    if (scheme && *insert && !*first && strcmp(scheme, "always") != 0)
        status = nn_error(&l->to, MHA_BAD_FILE, "the prepend_scheme %s of %s is not supported",
                          nn_json_brief(scheme).text, f->where);
    else if (!prefix && *insert)
        status = nn_error(&l->to, MHA_BAD_FILE, "add_prefix_space of %s contradicts its prepend_scheme", f->where);
    free(scheme);
    return status;
}

static mha_status metaspace(nn_load *l, const nn_fields *f, void *s)
{
    char code[5] = "";
    int32_t mark = 0;
    bool insert, first, cut = true;
    TRY(nn_load_code(l, f, "replacement", &mark));
    TRY(prepend_scheme(l, f, &insert, &first));
    TRY(nn_fields_bool(f, "split", &cut));
    nn_utf8_put(code, mark);
    nn_step *step = nn_steps_edit(s, nn_edit_replace);
    if (!step || !(step->pattern.text = copy(" ")) || !(step->content = copy(code))) return nn_load_memory(l);
    step->pattern.size = 1;
    step->content_size = strlen(code);
    if (insert) TRY(insert_first(l, s, code, first));
    if (!cut) return MHA_OK;
    step = nn_steps_cut(s, nn_cut_pattern);
    if (!step || !(step->pattern.text = copy(code))) return nn_load_memory(l);
    step->pattern.size = strlen(code);
    step->behavior = NN_MERGED_WITH_NEXT;
    return MHA_OK;
}

static mha_status bert_splitter(nn_load *l, const nn_fields *f, void *s)
{
    TRY(put_class(l, f, s, nn_is_space, NN_REMOVED));
    return put_class(l, f, s, nn_is_punctuation, NN_ISOLATED);
}

static mha_status digits(nn_load *l, const nn_fields *f, void *s)
{
    bool single = false;
    TRY(nn_fields_bool(f, "individual_digits", &single));
    return put_class(l, f, s, nn_is_number, single ? NN_ISOLATED : NN_CONTIGUOUS);
}

static mha_status punctuation(nn_load *l, const nn_fields *f, void *s)
{
    nn_behavior behavior = NN_ISOLATED;
    TRY(behavior_of(l, f, &behavior));
    return put_class(l, f, s, nn_is_punctuation, behavior);
}

static mha_status whitespace(nn_load *l, const nn_fields *f, void *s)
{
    TRY(needs_unicode(l, f));
    return made(l, nn_steps_cut(s, nn_cut_words));
}

static mha_status whitespace_split(nn_load *l, const nn_fields *f, void *s)
{
    return put_class(l, f, s, nn_is_space, NN_REMOVED);
}

static mha_status delimiter(nn_load *l, const nn_fields *f, void *s)
{
    int32_t code = 0;
    char text[5] = "";
    TRY(nn_load_code(l, f, "delimiter", &code));
    nn_step *step = nn_steps_cut(s, nn_cut_pattern);
    if (!step || !(step->pattern.text = malloc(sizeof text))) return nn_load_memory(l);
    step->pattern.size = nn_utf8_put(text, code);
    memcpy(step->pattern.text, text, sizeof text);
    step->behavior = NN_REMOVED;
    return MHA_OK;
}

static mha_status fixed_length(nn_load *l, const nn_fields *f, void *s)
{
    nn_step *step = nn_steps_cut(s, nn_cut_length);
    if (!step) return nn_load_memory(l);
    step->length = 5;
    return nn_fields_integer(f, "length", 1, INT64_MAX, &step->length);
}

static const nn_component splitters[] = {
    {"Sequence", "type pretokenizers", NULL},
    {"Split", "type pattern behavior invert", split},
    {"ByteLevel", "type add_prefix_space trim_offsets use_regex", byte_level},
    {"Metaspace", "type replacement prepend_scheme split add_prefix_space str_rep", metaspace},
    {"BertPreTokenizer", "type", bert_splitter},
    {"Digits", "type individual_digits", digits},
    {"Punctuation", "type behavior", punctuation},
    {"Whitespace", "type", whitespace},
    {"WhitespaceSplit", "type", whitespace_split},
    {"CharDelimiterSplit", "type delimiter", delimiter},
    {"FixedLength", "type length", fixed_length},
    {NULL, NULL, NULL},
};

mha_status nn_load_splitter(nn_load *l, const nn_json *at, nn_steps *steps)
{
    return at ? nn_load_component(l, at, "pre-tokenizer", splitters, steps) : MHA_OK;
}
