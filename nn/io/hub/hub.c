#include "io/hub/hub.h"
#include "io/failure.h"
#include "io/json.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH = 4096, LONGEST_NAME = 96 };

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static bool join(char *out, size_t room, const char *folder, const char *name)
{
    size_t length = strlen(folder);
    bool bare = !length || folder[length - 1] == '/';
    int n = snprintf(out, room, "%s%s%s", folder, bare ? "" : "/", name);
    return n >= 0 && (size_t)n < room;
}

/* ---- The cache --------------------------------------------------------------------------------------------------- */

/* A path of the environment, with ~ at its beginning and with $NAME and ${NAME}; those that are not set stay. */
static bool expand(char *out, size_t room, const char *text)
{
    size_t n = 0;
    const char *home = getenv("HOME");
    if (*text == '~' && (text[1] == '/' || !text[1]) && home) {
        n = (size_t)snprintf(out, room, "%s", home);
        text++;
    }
    while (*text && n + 1 < room) {
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
        char name[128];
        bool braces = text[0] == '$' && text[1] == '{';
        const char *first = text + 1 + braces;
        size_t length = strspn(first, letters);
        const char *value = NULL;
        if (*text == '$' && length && length < sizeof name && (!braces || first[length] == '}')) {
            snprintf(name, sizeof name, "%.*s", (int)length, first);
            value = getenv(name);
        }
        if (value) {
            n += (size_t)snprintf(out + n, room - n, "%s", value);
            text = first + length + braces;
        } else out[n++] = *text++;
    }
    if (n >= room) return false;
    out[n] = 0;
    return true;
}

/* The folder of the cache; false: no variable says where it is, or the path is too long. */
static bool cache_folder(char out[PATH])
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "hub"},
                  {"XDG_CACHE_HOME", "huggingface/hub"},
                  {"HOME", ".cache/huggingface/hub"}};
    for (size_t n = 0; n < sizeof places / sizeof *places; n++) {
        char folder[PATH];
        const char *value = getenv(places[n].variable);
        if (!value) continue;
        if (!expand(folder, sizeof folder, value)) return false;
        if (!*places[n].below) return snprintf(out, PATH, "%s", folder) < PATH;
        return join(out, PATH, folder, places[n].below);
    }
    return false;
}

/* ---- Snapshots --------------------------------------------------------------------------------------------------- */

/* The one snapshot of a folder; false: there is none, or there are several. */
static bool only_snapshot(char *out, size_t room, const char *snapshots)
{
    DIR *folder = opendir(snapshots);
    int count = 0;
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        if (e->d_name[0] == '.') continue;
        if (!count++ && !join(out, room, snapshots, e->d_name)) count = 2;
    }
    if (folder) closedir(folder);
    return count == 1 && is_folder(out);
}

/* The first word of a file. */
static bool read_word(char *out, size_t room, const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(out, 1, room - 1, file) : 0;
    if (file) fclose(file);
    out[n] = 0;
    out[strcspn(out, " \r\n\t")] = 0;
    return *out && strlen(out) < room - 1;
}

/* The snapshot of a folder models--ORG--NAME that refs/main names, or, without that, the only one. */
static mha_status find_snapshot(char *out, size_t room, const char *repository, const char *snapshots,
                                const nn_failure *to)
{
    char refs[PATH], commit[128] = "";
    bool named = join(refs, sizeof refs, repository, "refs/main") && read_word(commit, sizeof commit, refs);
    if (!named && only_snapshot(out, room, snapshots)) return MHA_OK;
    if (!named) return nn_error(to, MHA_BAD_FILE, "has no refs/main, which says which of its snapshots is the model");
    if (!strchr(commit, '/') && *commit != '.' && join(out, room, snapshots, commit) && is_folder(out)) return MHA_OK;
    return nn_error(to, MHA_BAD_FILE, "has no snapshot %s, which its refs/main names; download the model again",
                    nn_json_brief(commit).text);
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static bool ends_like_a_file(const char *name)
{
    static const char *const endings[] = {".safetensors", ".bin",   ".pt",  ".pth", ".ckpt", ".json",   ".gguf",
                                          ".onnx",        ".model", ".txt", ".spm", ".h5",   ".msgpack"};
    for (size_t n = 0; n < sizeof endings / sizeof *endings; n++) {
        size_t length = strlen(name), tail = strlen(endings[n]);
        if (length > tail && strcmp(name + length - tail, endings[n]) == 0) return true;
    }
    return false;
}

/* NAME or ORG/NAME, by the rules of the hub; *parts gets how many parts it has. */
static bool is_name(const char *text, int *parts)
{
    size_t length = strlen(text);
    *parts = 1;
    if (!length || length > LONGEST_NAME || strstr(text, "--") || strstr(text, "..")) return false;
    for (size_t n = 0; n < length; n++) {
        char c = text[n];
        bool side = n == 0 || n + 1 == length || text[n - 1] == '/' || text[n + 1] == '/';
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (c == '/' && !side) (*parts)++;
        else if (!letter && (side || (c != '-' && c != '.'))) return false;
    }
    return *parts <= 2 && !ends_like_a_file(text);
}

/* The folder of a name in the cache. */
static bool repository_of(char out[PATH], const char *cache, const char *name)
{
    char folder[2 * LONGEST_NAME + 16] = "models--";
    size_t n = strlen(folder);
    for (; *name; name++) {
        folder[n++] = (char)(*name == '/' ? '-' : *name);
        if (*name == '/') folder[n++] = '-';
    }
    folder[n] = 0;
    return join(out, PATH, cache, folder);
}

mha_status nn_hub_place(char *out, size_t room, const char *path, char *error, size_t error_size)
{
    struct stat about;
    int parts;
    char cache[PATH], repository[PATH], snapshots[PATH];
    nn_failure to = {path, error, error_size};
    bool there = stat(path, &about) == 0;
    if (snprintf(out, room, "%s", path) >= (int)room) return nn_error(&to, MHA_BAD_FILE, "the path is too long");
    if (there) {
        bool own = join(snapshots, sizeof snapshots, path, "snapshots") && is_folder(snapshots) &&
                   join(repository, sizeof repository, path, "config.json") && stat(repository, &about) != 0;
        return own ? find_snapshot(out, room, path, snapshots, &to) : MHA_OK;
    }
    if (!is_name(path, &parts)) return MHA_OK;
    bool known = cache_folder(cache);
    if (known && repository_of(repository, cache, path) && join(snapshots, sizeof snapshots, repository, "snapshots") &&
        is_folder(snapshots)) {
        to.name = repository;
        return find_snapshot(out, room, repository, snapshots, &to);
    }
    if (parts == 1 && strchr(path, '.')) return MHA_OK; /* as likely a file as a model */
    return nn_error(
        &to, MHA_BAD_FILE,
        "is no file or folder, and no model in the cache of huggingface_hub%s%s; 'hf download %s' downloads it",
        known ? ", " : "", known ? cache : "", path);
}
