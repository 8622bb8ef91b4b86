/* Normalizers and pre-tokenizers of a tokenizer.json. Each component becomes one or more steps (text/steps.h). */
#include "text/files/load.h"

#include <stdlib.h>
#include <string.h>

/* A step that was just added, or an error. */
static bool made(nn_load *l, const nn_step *step) { return step || nn_load_memory(l); }

static bool needs_unicode(nn_load *l, const nn_fields *f)
{
    return nn_unicode_available() || nn_fail(&l->to, "%s needs utf8proc, which this build does not have", f->where);
}

/* A step with fixed settings. */
static bool put_edit(nn_load *l, const nn_fields *f, nn_steps *s, nn_edit *edit, nn_char_class *is)
{
    nn_step *step = needs_unicode(l, f) ? nn_steps_edit(s, edit) : NULL;
    if (!nn_unicode_available()) return false;
    if (step) step->is = is;
    return made(l, step);
}

static bool put_class(nn_load *l, const nn_fields *f, nn_steps *s, nn_char_class *is, nn_behavior behavior)
{
    if (is != nn_is_space && !needs_unicode(l, f)) return false;
    nn_step *step = nn_steps_cut(s, nn_cut_class);
    if (step) {
        step->is = is;
        step->behavior = behavior;
    }
    return made(l, step);
}

/* ---- Normalizers ------------------------------------------------------------------------------------------------- */

static bool normal_form(nn_load *l, const nn_fields *f, nn_steps *s, bool compose, bool compatible)
{
    if (!put_edit(l, f, s, nn_edit_normalize, NULL)) return false;
    s->at[s->count - 1].compose = compose;
    s->at[s->count - 1].compatible = compatible;
    return true;
}

static bool nfc(nn_load *l, const nn_fields *f, void *s) { return normal_form(l, f, s, true, false); }
static bool nfd(nn_load *l, const nn_fields *f, void *s) { return normal_form(l, f, s, false, false); }
static bool nfkc(nn_load *l, const nn_fields *f, void *s) { return normal_form(l, f, s, true, true); }
static bool nfkd(nn_load *l, const nn_fields *f, void *s) { return normal_form(l, f, s, false, true); }
static bool lowercase(nn_load *l, const nn_fields *f, void *s) { return put_edit(l, f, s, nn_edit_lower, NULL); }
static bool strip_accents(nn_load *l, const nn_fields *f, void *s)
{
    return put_edit(l, f, s, nn_edit_drop, nn_is_mark);
}

static bool nmt(nn_load *l, const nn_fields *f, void *s)
{
    (void)f;
    return made(l, nn_steps_edit(s, nn_edit_nmt));
}

static bool byte_normalizer(nn_load *l, const nn_fields *f, void *s)
{
    (void)f;
    return made(l, nn_steps_edit(s, nn_edit_bytes));
}

static bool strip(nn_load *l, const nn_fields *f, void *s)
{
    nn_step *step = nn_steps_edit(s, nn_edit_strip);
    return made(l, step) && nn_fields_need(f, "strip_left") && nn_fields_need(f, "strip_right") &&
           nn_fields_bool(f, "strip_left", &step->left) && nn_fields_bool(f, "strip_right", &step->right);
}

static bool replace(nn_load *l, const nn_fields *f, void *s)
{
    nn_step *step = nn_steps_edit(s, nn_edit_replace);
    return made(l, step) && nn_load_pattern(l, f, &step->pattern) && nn_fields_need(f, "content") &&
           nn_fields_text(f, "content", &step->content, &step->content_size);
}

static bool prepend(nn_load *l, const nn_fields *f, void *s)
{
    nn_step *step = nn_steps_edit(s, nn_edit_insert);
    return made(l, step) && nn_fields_need(f, "prepend") &&
           nn_fields_text(f, "prepend", &step->content, &step->content_size);
}

static bool bert_normalizer(nn_load *l, const nn_fields *f, void *s)
{
    bool clean = true, ideographs = true, lower = true;
    if (!nn_fields_bool(f, "clean_text", &clean) || !nn_fields_bool(f, "handle_chinese_chars", &ideographs) ||
        !nn_fields_bool(f, "lowercase", &lower))
        return false;
    bool accents = lower; /* stripped, unless the file says otherwise */
    if (!nn_fields_bool(f, "strip_accents", &accents)) return false;
    if (clean && !put_edit(l, f, s, nn_edit_clean, NULL)) return false;
    if (ideographs && !put_edit(l, f, s, nn_edit_ideograph, NULL)) return false;
    if (accents && !(nfd(l, f, s) && put_edit(l, f, s, nn_edit_drop, nn_is_nonspacing))) return false;
    return !lower || lowercase(l, f, s);
}

static bool precompiled(nn_load *l, const nn_fields *f, void *s)
{
    char *text = NULL;
    size_t size = 0;
    const char *why = "";
    if (!nn_fields_find(f, "precompiled_charsmap")) return true; /* a table without rules */
    if (!needs_unicode(l, f) || !nn_fields_text(f, "precompiled_charsmap", &text, &size)) return false;
    nn_step *step = size ? nn_steps_edit(s, nn_edit_precompiled) : NULL;
    if (step) step->precompiled = nn_precompiled_base64(text, size, &why);
    free(text);
    if (size && !step) return nn_load_memory(l);
    return !size || step->precompiled || nn_fail(&l->to, "%s: %s", f->where, why);
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

bool nn_load_normalizer(nn_load *l, const nn_json *at, nn_steps *steps)
{
    return !at || nn_load_component(l, at, "normalizer", normalizers, steps);
}

/* ---- Pre-tokenizers ---------------------------------------------------------------------------------------------- */

static bool behavior_of(nn_load *l, const nn_fields *f, nn_behavior *behavior)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    char *name = NULL;
    if (!nn_fields_text(f, "behavior", &name, NULL)) return false;
    if (!name) return true;
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0) {
            *behavior = (nn_behavior)i;
            free(name);
            return true;
        }
    nn_fail(&l->to, "the behavior %s of %s is not supported", nn_json_brief(name).text, f->where);
    free(name);
    return false;
}

static bool split(nn_load *l, const nn_fields *f, void *s)
{
    nn_step *step = nn_steps_cut(s, nn_cut_pattern);
    return made(l, step) && nn_load_pattern(l, f, &step->pattern) && nn_fields_need(f, "behavior") &&
           behavior_of(l, f, &step->behavior) && nn_fields_bool(f, "invert", &step->invert);
}

static char *copy(const char *text) { return strdup(text); }

/* GPT-2's split into words. */
static const char words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bool insert_first(nn_load *l, nn_steps *s, const char *content, bool first)
{
    nn_step *step = nn_steps_edit(s, nn_edit_insert);
    if (!step || !(step->content = copy(content))) return nn_load_memory(l);
    step->content_size = strlen(content);
    step->unless = true;
    step->first = first;
    s->track = s->track || first;
    return true;
}

bool nn_load_bytes(nn_load *l, nn_steps *s, const char *where, bool prefix_space, bool split_words)
{
    char error[200];
    if (prefix_space && !insert_first(l, s, " ", false)) return false;
    if (split_words) {
        nn_step *step = nn_steps_cut(s, nn_cut_pattern);
        if (!step) return nn_load_memory(l);
        step->behavior = NN_ISOLATED;
        if (!(step->pattern.text = copy(words))) return nn_load_memory(l);
        step->pattern.expression = nn_expression_compile(words, error, sizeof error);
        if (!step->pattern.expression) return nn_fail(&l->to, "%s: %s", where, error);
    }
    return made(l, nn_steps_edit(s, nn_edit_bytes));
}

static bool byte_level(nn_load *l, const nn_fields *f, void *s)
{
    bool prefix = true, trim = true, use = true;
    return nn_fields_bool(f, "add_prefix_space", &prefix) && nn_fields_bool(f, "trim_offsets", &trim) &&
           nn_fields_bool(f, "use_regex", &use) && nn_load_bytes(l, s, f->where, prefix, use);
}

/* prepend_scheme, and its older spelling add_prefix_space. */
static bool prepend_scheme(nn_load *l, const nn_fields *f, bool *insert, bool *first)
{
    char *scheme = NULL;
    bool prefix = true;
    if (!nn_fields_text(f, "prepend_scheme", &scheme, NULL) || !nn_fields_bool(f, "add_prefix_space", &prefix)) {
        free(scheme);
        return false;
    }
    *insert = scheme ? strcmp(scheme, "never") != 0 : prefix;
    *first = scheme && strcmp(scheme, "first") == 0;
    bool known = !scheme || !*insert || *first || strcmp(scheme, "always") == 0;
    if (!known) nn_fail(&l->to, "the prepend_scheme %s of %s is not supported", nn_json_brief(scheme).text, f->where);
    else if (!prefix && *insert)
        known = nn_fail(&l->to, "add_prefix_space of %s contradicts its prepend_scheme", f->where);
    free(scheme);
    return known;
}

static bool metaspace(nn_load *l, const nn_fields *f, void *s)
{
    char code[5] = "";
    int32_t mark = 0;
    bool insert, first, cut = true;
    if (!nn_load_code(l, f, "replacement", &mark) || !prepend_scheme(l, f, &insert, &first) ||
        !nn_fields_bool(f, "split", &cut))
        return false;
    nn_utf8_put(code, mark);
    nn_step *step = nn_steps_edit(s, nn_edit_replace);
    if (!step || !(step->pattern.text = copy(" ")) || !(step->content = copy(code))) return nn_load_memory(l);
    step->pattern.size = 1;
    step->content_size = strlen(code);
    if (insert && !insert_first(l, s, code, first)) return false;
    if (!cut) return true;
    step = nn_steps_cut(s, nn_cut_pattern);
    if (!step || !(step->pattern.text = copy(code))) return nn_load_memory(l);
    step->pattern.size = strlen(code);
    step->behavior = NN_MERGED_WITH_NEXT;
    return true;
}

static bool bert_splitter(nn_load *l, const nn_fields *f, void *s)
{
    return put_class(l, f, s, nn_is_space, NN_REMOVED) && put_class(l, f, s, nn_is_punctuation, NN_ISOLATED);
}

static bool digits(nn_load *l, const nn_fields *f, void *s)
{
    bool single = false;
    return nn_fields_bool(f, "individual_digits", &single) &&
           put_class(l, f, s, nn_is_number, single ? NN_ISOLATED : NN_CONTIGUOUS);
}

static bool punctuation(nn_load *l, const nn_fields *f, void *s)
{
    nn_behavior behavior = NN_ISOLATED;
    return behavior_of(l, f, &behavior) && put_class(l, f, s, nn_is_punctuation, behavior);
}

static bool whitespace(nn_load *l, const nn_fields *f, void *s)
{
    return needs_unicode(l, f) && made(l, nn_steps_cut(s, nn_cut_words));
}

static bool whitespace_split(nn_load *l, const nn_fields *f, void *s)
{
    return put_class(l, f, s, nn_is_space, NN_REMOVED);
}

static bool delimiter(nn_load *l, const nn_fields *f, void *s)
{
    int32_t code = 0;
    char text[5] = "";
    if (!nn_load_code(l, f, "delimiter", &code)) return false;
    nn_step *step = nn_steps_cut(s, nn_cut_pattern);
    step = step && (step->pattern.text = malloc(sizeof text)) ? step : NULL;
    if (!step) return nn_load_memory(l);
    step->pattern.size = nn_utf8_put(text, code);
    memcpy(step->pattern.text, text, sizeof text);
    step->behavior = NN_REMOVED;
    return true;
}

static bool fixed_length(nn_load *l, const nn_fields *f, void *s)
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

bool nn_load_splitter(nn_load *l, const nn_json *at, nn_steps *steps)
{
    return !at || nn_load_component(l, at, "pre-tokenizer", splitters, steps);
}
