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

/* Reads a whole file, which may contain any bytes, in pieces: the size of a gzipped one is known only at its end. */
static mha_status read_source(nn_source *from, char **bytes, size_t *size)
{
    size_t room = 0, n = 1;
    while (n) {
        if (*size >= MOST) return nn_source_fail(from, MHA_BAD_FILE, "has more than %d bytes", MOST);
        if (nn_grow(bytes, &room, *size + (1 << 16) + 1, 1))
            return nn_source_fail(from, MHA_NO_MEMORY, "not enough memory");
        n = nn_source_take(from, *bytes + *size, room - *size - 1);
        *size += n;
        TRY(from->failed);
    }
    const char *is = nn_source_foreign(*bytes, *size);
    if (is) return nn_source_fail(from, MHA_BAD_FILE, "%s", is);
    (*bytes)[*size] = 0;
    return MHA_OK;
}

static mha_status read_file(char **bytes, const char *path, size_t *size, char *error, size_t error_size)
{
    nn_source from;
    *bytes = NULL;
    *size = 0;
    mha_status status = nn_source_open(&from, path, error, error_size);
    if (!status) status = read_source(&from, bytes, size);
    nn_source_close(&from);
    if (status) {
        free(*bytes);
        *bytes = NULL;
    }
    return status;
}

static char *join(const char *folder, const char *name)
{
    size_t room = strlen(folder) + strlen(name) + 2;
    char *path = malloc(room);
    if (path) snprintf(path, room, "%s/%s", folder, name);
    return path;
}

mha_status nn_load_beside(nn_load *l, const char *name, char **bytes, size_t *size)
{
    struct stat about;
    *bytes = NULL;
    if (!l->folder) return MHA_OK;
    char *path = join(l->folder, name);
    if (!path) return nn_load_memory(l);
    mha_status status = MHA_OK;
    if (stat(path, &about) == 0) status = read_file(bytes, path, size, l->to.error, l->to.error_size);
    free(path);
    return status;
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
static mha_status load_any_json(nn_load *l, const char *text, size_t size)
{
    static const struct {
        const char *field;
        mha_status (*load)(nn_load *l, const char *text, size_t size);
    } kinds[] = {{"model", nn_load_json}, {"pieces", nn_load_llama2c_json}, {"source", nn_load_characters}};
    const char *name = strrchr(l->to.name, '/');
    name = name ? name + 1 : l->to.name;
    if (strcmp(name, "vocab.json") == 0 || strcmp(name, "encoder.json") == 0) return nn_load_vocab_json(l, text, size);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (has_field(text, size, kinds[i].field)) return kinds[i].load(l, text, size);
    return nn_load_json(l, text, size);
}

static mha_status load_sentencepiece(nn_load *l, const char *bytes, size_t size)
{
    size_t vocab_size = 0;
    char *vocab;
    TRY(nn_load_sentencepiece(l, bytes, size));
    TRY(nn_load_beside(l, "vocab.json", &vocab, &vocab_size));
    mha_status status = vocab ? nn_load_renamed(l, vocab, vocab_size) : MHA_OK;
    free(vocab);
    TRY(status);
    TRY(nn_text_config_apply(l));
    return nn_text_config_template(l, "");
}

static const struct {
    const char *ending;
    mha_status (*load)(nn_load *l, const char *bytes, size_t size);
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

static mha_status load(nn_load *l, const char *bytes, size_t size)
{
    int i = 0;
    TRY(nn_text_config_read(l));
    while (i < FORMATS && !ends_with(l->to.name, formats[i].ending)) i++;
    if (i == FORMATS)
        return nn_error(&l->to, MHA_BAD_FILE,
                        "is no tokenizer that this library knows: .json, .model, .spm, vocab.txt, merges.txt or .bin");
    TRY(formats[i].load(l, bytes, size));
    TRY(nn_text_config_apply(l));
    mha_status status = nn_tokenizer_prepare(l->t);
    if (status == MHA_NO_MEMORY) return nn_load_memory(l);
    return status ? nn_error(&l->to, MHA_BAD_FILE, "its added tokens cannot be normalized") : MHA_OK;
}

static mha_status read_tokenizer(nn_tokenizer **tokenizer, const char *name, const char *folder, const char *bytes,
                                 size_t size, nn_open_options options, char *error, size_t error_size)
{
    nn_load l = {.t = nn_tokenizer_make(),
                 .to = {name, error, error_size},
                 .folder = folder,
                 .target = options.target,
                 .cased = options.cased};
    *tokenizer = NULL;
    if (!l.t) return nn_load_memory(&l);
    mha_status status = load(&l, bytes, size);
    nn_text_config_free(&l.config);
    if (status) nn_tokenizer_free(l.t);
    else *tokenizer = l.t;
    return status;
}

mha_status nn_tokenizer_read(nn_tokenizer **tokenizer, const char *name, const char *bytes, size_t size,
                             nn_open_options options, char *error, size_t error_size)
{
    return read_tokenizer(tokenizer, name, NULL, bytes, size, options, error, error_size);
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

/* The path of such a file, to be freed. */
static mha_status file_in(char **file, const nn_failure *to, bool target)
{
    struct stat about;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (files[i].target >= 0 && files[i].target != target) continue;
        *file = join(to->name, files[i].name);
        if (!*file) return nn_error(to, MHA_NO_MEMORY, "not enough memory for its path");
        if (stat(*file, &about) == 0) return MHA_OK;
        free(*file);
    }
    *file = NULL;
    return nn_error(to, MHA_BAD_FILE, "has no file of a tokenizer, such as tokenizer.json");
}

/* Opens a file; `file` becomes the tokenizer's. */
static mha_status open_file(nn_tokenizer **tokenizer, char *file, const nn_failure *to, nn_open_options options)
{
    size_t size = 0;
    char *bytes;
    TRY(read_file(&bytes, file, &size, to->error, to->error_size));
    char *folder = strdup(file), *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash) slash[slash == folder] = 0;
    mha_status status =
        folder ? read_tokenizer(tokenizer, file, slash ? folder : ".", bytes, size, options, to->error, to->error_size)
               : nn_error(to, MHA_NO_MEMORY, "not enough memory for its path");
    if (*tokenizer) (*tokenizer)->file = file;
    free(folder);
    free(bytes);
    return status;
}

mha_status nn_tokenizer_open(nn_tokenizer **tokenizer, const char *path, nn_open_options options, char *error,
                             size_t error_size)
{
    struct stat about;
    char place[4096], *file = NULL;
    *tokenizer = NULL;
    TRY(nn_hub_place(place, sizeof place, path, error, error_size));
    nn_failure to = {place, error, error_size};
    mha_status status = MHA_OK;
    if (stat(place, &about) == 0 && S_ISDIR(about.st_mode)) status = file_in(&file, &to, options.target);
    else if (!(file = strdup(place))) status = nn_error(&to, MHA_NO_MEMORY, "not enough memory for its path");
    if (file) status = open_file(tokenizer, file, &to, options); /* else the status says why */
    if (!*tokenizer) free(file);
    return status;
}
