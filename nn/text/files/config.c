/* tokenizer_config.json and special_tokens_map.json, which `transformers` saves beside a tokenizer's file. */
#include "text/files/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *key;
    nn_special role;
} roles[] = {{"bos_token", NN_BOS},   {"eos_token", NN_EOS}, {"unk_token", NN_UNK}, {"pad_token", NN_PAD},
             {"mask_token", NN_MASK}, {"cls_token", NN_CLS}, {"sep_token", NN_SEP}};

static const struct {
    const char *key;
    size_t at;
} flags[] = {{"add_bos_token", offsetof(nn_text_config, add_bos)},
             {"add_eos_token", offsetof(nn_text_config, add_eos)},
             {"do_lower_case", offsetof(nn_text_config, lower)},
             {"strip_accents", offsetof(nn_text_config, accents)},
             {"tokenize_chinese_chars", offsetof(nn_text_config, ideographs)},
             {"add_prefix_space", offsetof(nn_text_config, prefix_space)}};

/* A text of a file whose syntax was checked. */
static char *read_text(nn_text_config *c, nn_json *j)
{
    char *text = nn_json_copy(j, NULL);
    c->no_memory = c->no_memory || !text;
    return text;
}

/* A token: a text, or an object with the field "content". NULL for anything else. */
static char *read_token(nn_text_config *c, nn_json j)
{
    if (nn_json_peek(&j) == '"') return read_text(c, &j);
    if (nn_json_peek(&j) != '{') return NULL;
    nn_json_enter(&j, '{');
    while (nn_json_more(&j, '}')) {
        char *key = read_text(c, &j);
        if (!key || nn_json_peek(&j) != ':') {
            free(key);
            return NULL;
        }
        j.at++;
        bool found = strcmp(key, "content") == 0;
        free(key);
        if (found) return nn_json_peek(&j) == '"' ? read_text(c, &j) : NULL;
        nn_json_skip(&j);
    }
    return NULL;
}

static void keep_setting(nn_text_config *c, const char *key, nn_json value)
{
    int first = nn_json_peek(&value);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(key, roles[i].key) == 0 && !c->special[roles[i].role])
            c->special[roles[i].role] = read_token(c, value);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(key, flags[i].key) == 0 && (first == 't' || first == 'f')) {
            int yes = first == 't';
            memcpy((char *)c + flags[i].at, &yes, sizeof yes);
        }
    if (strcmp(key, "tokenizer_class") == 0 && !c->class && first == '"') c->class = read_text(c, &value);
    if (strcmp(key, "src_lang") == 0 && !c->source_language && first == '"') c->source_language = read_text(c, &value);
    if (strcmp(key, "added_tokens_decoder") == 0 && first == '{') c->added = value;
}

static void read_file(nn_text_config *c, const char *text, size_t size)
{
    nn_json j = nn_json_open(text, size), check = j;
    if (!nn_json_skip(&check) || nn_json_peek(&j) != '{') return;
    nn_json_enter(&j, '{');
    while (nn_json_more(&j, '}')) {
        char *key = read_text(c, &j);
        if (!key) return;
        nn_json_peek(&j);
        j.at++; /* the colon */
        keep_setting(c, key, j);
        free(key);
        nn_json_skip(&j);
    }
}

mha_status nn_text_config_read(nn_load *l)
{
    nn_text_config *c = &l->config;
    char *map;
    size_t size = 0;
    *c = (nn_text_config){
        .add_bos = -1, .add_eos = -1, .lower = -1, .accents = -1, .ideographs = -1, .prefix_space = -1};
    TRY(nn_load_beside(l, "tokenizer_config.json", &c->text, &size));
    if (c->text) read_file(c, c->text, size);
    TRY(nn_load_beside(l, "special_tokens_map.json", &map, &size));
    if (map) {
        nn_json added = c->added;
        read_file(c, map, size);
        c->added = added;
    }
    free(map);
    return c->no_memory ? nn_load_memory(l) : MHA_OK;
}

void nn_text_config_free(nn_text_config *c)
{
    free(c->class);
    free(c->source_language);
    for (int i = 0; i < NN_SPECIALS; i++) free(c->special[i]);
    free(c->text);
}

/* ---- Applying ---------------------------------------------------------------------------------------------------- */

/* A token of added_tokens_decoder, {"id": {"content": ..., flags}}, unless an entry of `there`, by id, says that there is one. */
static mha_status add_decoder_token(nn_load *l, nn_json *j, nn_fields *f, bool *there)
{
    char *key = nn_json_copy(j, NULL), *content = NULL, *end = NULL;
    size_t size = 0;
    nn_json_peek(j);
    j->at++;
    mha_status status = key ? nn_fields_read(f, &l->to, "added_tokens_decoder", j) : nn_load_memory(l);
    if (!status) status = nn_fields_text(f, "content", &content, &size);
    long long id = key ? strtoll(key, &end, 10) : -1;
    if (!status && size && id >= 0 && id < NN_VOCABULARY_MOST && !*end && !there[id]) {
        there[id] = true;
        nn_added_token *t = nn_added_add(&l->t->added, content, size, (int32_t)id);
        status = t ? nn_fields_bool(f, "special", &t->special) : nn_load_memory(l);
        if (!status) status = nn_fields_bool(f, "single_word", &t->single_word);
        if (!status) status = nn_fields_bool(f, "lstrip", &t->lstrip);
        if (!status) status = nn_fields_bool(f, "rstrip", &t->rstrip);
    }
    free(key);
    free(content);
    return status;
}

/* The tokens of added_tokens_decoder that the vocabulary does not have. */
static mha_status add_tokens(nn_load *l)
{
    nn_json j = l->config.added;
    nn_fields *f = malloc(sizeof *f);
    bool *there = calloc(NN_VOCABULARY_MOST, sizeof *there); /* by id */
    mha_status status = f && there ? MHA_OK : nn_load_memory(l);
    for (size_t i = 0; !status && i < l->t->added.count; i++) there[l->t->added.tokens[i].id] = true;
    if (!status) nn_json_enter(&j, '{');
    while (!status && nn_json_more(&j, '}')) status = add_decoder_token(l, &j, f, there);
    free(f);
    free(there);
    return status;
}

static int32_t find(const nn_load *l, const char *piece)
{
    size_t size = piece ? strlen(piece) : 0;
    const nn_vocabulary *v = l->t->renamed ? &l->t->names : &l->t->model.vocabulary;
    for (size_t i = 0; piece && i < l->t->added.count; i++)
        if (l->t->added.tokens[i].content_size == size && memcmp(l->t->added.tokens[i].content, piece, size) == 0)
            return l->t->added.tokens[i].id;
    return piece ? nn_vocabulary_find(v, piece, size) : -1;
}

/* The languages of M2M-100, whose tokens follow the vocabulary in this order. */
static mha_status add_languages(nn_load *l)
{
    static const char codes[] = "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd "
                                "gl gu ha he hi hr ht hu hy id ig "
                                "ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc "
                                "or pa pl ps pt ro ru sd si sk sl so "
                                "sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu ";
    int32_t next = (int32_t)l->t->names.id_count;
    char piece[16];
    if (find(l, "__en__") >= 0) return MHA_OK; /* the files have them */
    for (const char *at = codes, *end; *at && (end = strchr(at, ' ')); at = end + 1) {
        int size = snprintf(piece, sizeof piece, "__%.*s__", (int)(end - at), at);
        nn_added_token *t = nn_added_add(&l->t->added, piece, (size_t)size, next++);
        if (!t) return nn_load_memory(l);
        t->special = true;
    }
    return MHA_OK;
}

mha_status nn_text_config_apply(nn_load *l)
{
    bool own = strcmp(l->t->format, "tokenizer.json") == 0; /* has its added tokens itself */
    if (!own && l->config.added.text) TRY(add_tokens(l));
    bool languages = !own && l->t->renamed && l->config.class && strncmp(l->config.class, "M2M100", 6) == 0;
    if (languages) TRY(add_languages(l));
    for (int i = 0; i < NN_SPECIALS; i++) {
        int32_t id = find(l, l->config.special[i]);
        if (id >= 0) l->t->special[i] = id;
    }
    return MHA_OK;
}

/* What the classes of `transformers` put around a text and a pair: A and B are the texts, b, e, c, s and l the tokens for
 * beginning, end, class, separator and language. */
static const struct {
    const char *class, *single, *pair;
} forms[] = {
    {"T5Tokenizer", "Ae", "AeBe"},
    {"LlamaTokenizer", "bA", "bAbB"},
    {"CodeLlamaTokenizer", "bA", "bAbB"},
    {"GemmaTokenizer", "bA", "bAbB"},
    {"MarianTokenizer", "Ae", "ABe"},
    {"M2M100Tokenizer", "lAe", "lABe"},
    {"RobertaTokenizer", "cAs", "cAssBs"},
    {"BartTokenizer", "cAs", "cAssBs"},
    {"LongformerTokenizer", "cAs", "cAssBs"},
    {"BertTokenizer", "cAs", "cAsBs"},
    {"DistilBertTokenizer", "cAs", "cAsBs"},
    {"ElectraTokenizer", "cAs", "cAsBs"},
    {"MPNetTokenizer", "cAs", "cAssBs"},
    {"GPT2Tokenizer", "A", "AB"},
    {"OPTTokenizer", "bA", "bAB"},
    {"GPTNeoXTokenizer", "A", "AB"},
};

/* Classes that change ids or texts in ways of their own. */
static const char *const refused[] = {"XLMRoberta", "Camembert", "MBart",   "Nllb",     "Pegasus",   "BigBird",
                                      "Barthez",    "XGLM",      "Albert",  "XLNet",    "DebertaV2", "CLIP",
                                      "Whisper",    "CodeGen",   "Bartpho", "LayoutXLM"};

static mha_status add_item(nn_load *l, nn_template *t, char what, int32_t type)
{
    static const struct {
        char letter;
        nn_special role;
    } letters[] = {{'b', NN_BOS}, {'e', NN_EOS}, {'c', NN_CLS}, {'s', NN_SEP}};
    char language[64];
    int32_t id = -1;
    if (what == 'A' || what == 'B') return nn_template_add(t, what - 'A', type) ? MHA_OK : nn_load_memory(l);
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].letter == what) id = l->t->special[letters[i].role];
    if (what == 'l') {
        snprintf(language, sizeof language, "__%.50s__", l->config.source_language ? l->config.source_language : "en");
        id = find(l, language);
    }
    if (id < 0) return MHA_OK; /* the tokenizer has no such token */
    const char *piece = nn_vocabulary_piece(l->t->renamed ? &l->t->names : &l->t->model.vocabulary, id, NULL);
    for (size_t i = 0; !piece && i < l->t->added.count; i++)
        if (l->t->added.tokens[i].id == id) piece = l->t->added.tokens[i].content;
    nn_template_item *item = nn_template_add(t, -1, type);
    if (!item || !(item->piece = strdup(piece ? piece : ""))) return nn_load_memory(l);
    item->id = id;
    return MHA_OK;
}

static mha_status make_template(nn_load *l, nn_template *t, const char *form, bool types)
{
    int32_t type = 0;
    for (; *form; form++) {
        if (*form == 'B') type = types ? 1 : 0;
        if (*form == 'b' && l->config.add_bos == 0) continue;
        TRY(add_item(l, t, *form, type));
        if (*form == 'A' && l->config.add_eos == 1 && !strchr(form, 'e')) TRY(add_item(l, t, 'e', type));
    }
    return MHA_OK;
}

mha_status nn_text_config_template(nn_load *l, const char *fallback)
{
    char class[64];
    const char *single = NULL, *pair = NULL;
    snprintf(class, sizeof class, "%s", l->config.class ? l->config.class : fallback);
    size_t size = strlen(class);
    if (size > 4 && strcmp(class + size - 4, "Fast") == 0) class[size - 4] = 0;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strncmp(class, refused[i], strlen(refused[i])) == 0)
            return nn_error(&l->to, MHA_BAD_FILE,
                            "the tokenizer_class %s needs a tokenizer.json, which `transformers` writes", class);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(class, forms[i].class) == 0) single = forms[i].single, pair = forms[i].pair;
    if (!single) single = "A", pair = "AB";
    if (l->config.add_bos == 1 && !strchr(single, 'b')) single = "bA", pair = "bAB";
    TRY(make_template(l, &l->t->single, single, true));
    return make_template(l, &l->t->pair, pair, strcmp(pair, "cAsBs") == 0 || strcmp(pair, "AB") == 0);
}
