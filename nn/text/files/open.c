/* Which reader a file gets: by the ending of its name, and JSON by what is in it. */
#include "text/files/open.h"
#include "io/hub/hub.h"
#include "io/source.h"
#include "text/files/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST = 1 << 30 }; /* bytes of a file */

/* ---- Files --------------------------------------------------------------------------------------------------------- */

/* Reads a whole file, which may contain any bytes. NULL on error. */
static char *read_file(const char *path, size_t *size, char *error, size_t error_size)
{
    nn_source from;
    char *bytes = NULL;
    size_t room = 0, n = 1;
    *size = 0;
    bool good = !nn_source_open(&from, path, error, error_size);
    while (good && n) {
        if (*size >= MOST) nn_source_fail(&from, MHA_BAD_FILE, "has more than %d bytes", MOST);
        else if (!nn_grow(&bytes, &room, *size + (1 << 16) + 1, 1))
            nn_source_fail(&from, MHA_NO_MEMORY, "not enough memory");
        good = !from.failed;
        if (!good) break;
        n = nn_source_take(&from, bytes + *size, room - *size - 1);
        *size += n;
        good = !from.failed;
    }
    const char *is = good ? nn_source_foreign(bytes, *size) : NULL;
    if (is) good = !nn_source_fail(&from, MHA_BAD_FILE, "%s", is);
    nn_source_close(&from);
    if (good) bytes[*size] = 0;
    else {
        free(bytes);
        bytes = NULL;
    }
    return bytes;
}

static char *join(const char *folder, const char *name)
{
    size_t room = strlen(folder) + strlen(name) + 2;
    char *path = malloc(room);
    if (path) snprintf(path, room, "%s/%s", folder, name);
    return path;
}

char *nn_load_beside(nn_load *l, const char *name, size_t *size, bool *failed)
{
    struct stat about;
    char *path = l->folder ? join(l->folder, name) : NULL, *bytes = NULL;
    *failed = l->folder && !path && !nn_load_memory(l);
    if (path && stat(path, &about) == 0) {
        bytes = read_file(path, size, l->to.error, l->to.error_size);
        *failed = !bytes;
    }
    free(path);
    return bytes;
}

/* ---- Formats ------------------------------------------------------------------------------------------------------- */

/* Whether the outer object of a text has a field. */
static bool has_field(const char *text, size_t size, const char *field)
{
    nn_json j = nn_json_open(text, size);
    bool found = false;
    j.nul = true;
    if (nn_json_peek(&j) != '{') return false;
    nn_json_enter(&j, '{');
    while (!found && nn_json_more(&j, '}')) {
        char *key = nn_json_copy(&j, NULL);
        if (!key) return false;
        found = strcmp(key, field) == 0;
        free(key);
        if (nn_json_peek(&j) != ':') return false;
        j.at++;
        nn_json_skip(&j);
    }
    return found;
}

/* The kinds of JSON, by a field that they have. */
static bool load_any_json(nn_load *l, const char *text, size_t size)
{
    static const struct {
        const char *field;
        bool (*load)(nn_load *l, const char *text, size_t size);
    } kinds[] = {{"model", nn_load_json}, {"pieces", nn_load_llama2c_json}, {"source", nn_load_characters}};
    const char *name = strrchr(l->to.name, '/');
    name = name ? name + 1 : l->to.name;
    if (strcmp(name, "vocab.json") == 0 || strcmp(name, "encoder.json") == 0) return nn_load_vocab_json(l, text, size);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (has_field(text, size, kinds[i].field)) return kinds[i].load(l, text, size);
    return nn_load_json(l, text, size);
}

static bool load_sentencepiece(nn_load *l, const char *bytes, size_t size)
{
    size_t vocab_size = 0;
    bool failed = false, done = nn_load_sentencepiece(l, bytes, size);
    char *vocab = done ? nn_load_beside(l, "vocab.json", &vocab_size, &failed) : NULL;
    if (vocab) done = nn_load_renamed(l, vocab, vocab_size);
    free(vocab);
    return done && !failed && nn_text_config_apply(l) && nn_text_config_template(l, "");
}

static const struct {
    const char *ending;
    bool (*load)(nn_load *l, const char *bytes, size_t size);
} formats[] = {
    {".json", load_any_json},       {".model", load_sentencepiece}, {".spm", load_sentencepiece},
    {"merges.txt", nn_load_merges}, {".bpe", nn_load_merges},       {".txt", nn_load_vocab_txt},
    {".bin", nn_load_llama2c},
};
enum { FORMATS = sizeof formats / sizeof *formats };

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), tail = strlen(ending);
    return n >= tail && strcmp(name + n - tail, ending) == 0;
}

static nn_tokenizer *read_tokenizer(const char *name, const char *folder, const char *bytes, size_t size,
                                    nn_open_options options, char *error, size_t error_size)
{
    nn_load l = {.t = nn_tokenizer_make(),
                 .to = {name, error, error_size},
                 .folder = folder,
                 .target = options.target,
                 .cased = options.cased};
    int i = 0;
    bool done = false;
    if (!l.t) {
        nn_load_memory(&l);
        return NULL;
    }
    bool known = nn_text_config_read(&l);
    while (i < FORMATS && !ends_with(name, formats[i].ending)) i++;
    if (known && i == FORMATS)
        nn_fail(&l.to, "is no tokenizer that this library knows: .json, .model, .spm, vocab.txt, merges.txt or .bin");
    else if (known)
        done = formats[i].load(&l, bytes, size) && nn_text_config_apply(&l) &&
               (nn_tokenizer_prepare(l.t) || nn_load_memory(&l));
    nn_text_config_free(&l.config);
    if (done) return l.t;
    nn_tokenizer_free(l.t);
    return NULL;
}

nn_tokenizer *nn_tokenizer_read(const char *name, const char *bytes, size_t size, nn_open_options options, char *error,
                                size_t error_size)
{
    return read_tokenizer(name, NULL, bytes, size, options, error, error_size);
}

/* ---- Paths --------------------------------------------------------------------------------------------------------- */

/* Files of a folder that can be opened, the first that is there; those of the other side of a translation model are left
 * out. */
static const struct {
    const char *name;
    int target; /* 1: for the target, 0: for the source; -1: for both */
} files[] = {{"tokenizer.json", -1}, {"tokenizer.model", -1}, {"spiece.model", -1},
             {"source.spm", 0},      {"target.spm", 1},       {"sentencepiece.bpe.model", -1},
             {"vocab.json", -1},     {"encoder.json", -1},    {"vocab.txt", -1},
             {"tokenizer.bin", -1}};

/* NULL, and `memory` false, if memory ran out. */
static char *file_in(const char *folder, bool target, bool *memory)
{
    struct stat about;
    *memory = true;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (files[i].target >= 0 && files[i].target != target) continue;
        char *path = join(folder, files[i].name);
        *memory = path != NULL;
        if (!path || stat(path, &about) == 0) return path;
        free(path);
    }
    return NULL;
}

nn_tokenizer *nn_tokenizer_open(const char *path, nn_open_options options, char *error, size_t error_size)
{
    struct stat about;
    size_t size = 0;
    char own[4096];
    if (nn_hub_place(own, sizeof own, path, error, error_size)) return NULL;
    path = own;
    nn_failure to = {path, error, error_size};
    bool folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode), memory = false;
    char *file = folder ? file_in(path, options.target, &memory) : strdup(path);
    if (!file) {
        nn_fail(&to, memory ? "has no file of a tokenizer, such as tokenizer.json" : "not enough memory for its path");
        return NULL;
    }
    char *bytes = read_file(file, &size, error, error_size), *place = bytes ? strdup(file) : NULL;
    if (bytes && !place) nn_fail(&to, "not enough memory for its path");
    nn_tokenizer *t = NULL;
    if (bytes && place) {
        char *slash = strrchr(place, '/');
        if (slash == place) slash++;
        if (slash) *slash = 0;
        t = read_tokenizer(file, slash ? place : ".", bytes, size, options, error, error_size);
    }
    if (t) t->file = file;
    else free(file);
    free(place);
    free(bytes);
    return t;
}
