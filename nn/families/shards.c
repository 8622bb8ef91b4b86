#include "families/shards.h"
#include "families/config.h"
#include "io/failure.h"
#include "io/json.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 256, SHARDS = 1024 };

static char *join(const char *folder, const char *name)
{
    size_t a = strlen(folder), b = strlen(name);
    char *path = malloc(a + b + 2);
    if (path) snprintf(path, a + b + 2, "%s%s%s", folder, a && folder[a - 1] == '/' ? "" : "/", name);
    return path;
}

static bool exists(const char *folder, const char *name)
{
    char *path = join(folder, name);
    bool there = path && access(path, F_OK) == 0;
    free(path);
    return there;
}

static bool add(nn_shards *s, const char *path, char *error, size_t error_size)
{
    nn_safetensors **more = realloc(s->file, (size_t)(s->count + 1) * sizeof *more);
    if (!more) return nn_fail(&(nn_failure){path, error, error_size}, "out of memory");
    s->file = more;
    nn_safetensors_map(&s->file[s->count], path, error, error_size);
    if (!s->file[s->count]) return false;
    s->count++;
    return true;
}

/* ---- Shards ----------------------------------------------------------------------------------------------------- */

/* The names of the files of an index, each once, in order of appearance; -1 on error. */
static int64_t list_files(char (*names)[NAME], const nn_config *index, const nn_failure *to)
{
    nn_fact map = nn_config_find(index, "weight_map");
    int64_t count = 0;
    if (nn_fact_count(map) < 1 || *map.text != '{')
        return nn_fail(to, "has no weight_map, which says where the tensors are"), -1;
    nn_json j = nn_json_open(map.text, map.size);
    nn_json_enter(&j, '{');
    while (nn_json_more(&j, '}')) {
        char name[NAME] = "";
        nn_json_key(&j, NULL, NULL);
        nn_json_peek(&j);
        size_t from = j.at;
        nn_json_skip(&j);
        if (!nn_fact_string(nn_fact_of((const char *)j.text + from, j.at - from), name, NAME) || !*name ||
            strchr(name, '/'))
            return nn_fail(to, "names a file that is not in its folder: %s", nn_json_brief(name).text), -1;
        int64_t n = 0;
        while (n < count && strcmp(names[n], name) != 0) n++;
        if (n == SHARDS) return nn_fail(to, "names more than %d files", SHARDS), -1;
        if (n == count) memcpy(names[count++], name, NAME);
    }
    return count;
}

/* Every tensor of the index must be in the file that it names. */
static bool check_index(const nn_shards *s, const nn_config *index, const nn_failure *to)
{
    nn_fact map = nn_config_find(index, "weight_map");
    nn_json j = nn_json_open(map.text, map.size);
    nn_json_enter(&j, '{');
    while (nn_json_more(&j, '}')) {
        char name[NAME] = "";
        nn_json_peek(&j);
        size_t from = j.at;
        nn_json_key(&j, NULL, NULL);
        const char *end = memchr((const char *)j.text + from + 1, '"', j.at - from - 1);
        size_t bytes = (size_t)(end - ((const char *)j.text + from + 1));
        nn_json_skip(&j);
        if (bytes >= NAME) return nn_fail(to, "has a name of %zu bytes", bytes);
        memcpy(name, j.text + from + 1, bytes);
        if (!nn_shards_find(s, name))
            return nn_fail(to, "names the tensor %s, which no file has", nn_json_brief(name).text);
    }
    return true;
}

static bool open_index(nn_shards *s, const char *folder, const char *path, char *error, size_t error_size)
{
    nn_config index;
    nn_failure to = {path, error, error_size};
    if (!nn_config_open(&index, path, error, error_size)) return false;
    char(*names)[NAME] = malloc(SHARDS * sizeof *names);
    int64_t count = names ? list_files(names, &index, &to) : (nn_fail(&to, "out of memory"), -1);
    bool ok = count > 0;
    for (int64_t n = 0; ok && n < count; n++) {
        char *shard = join(folder, names[n]);
        if (!exists(folder, names[n]))
            ok = nn_fail(&to, "names shard %lld of %lld, which is missing: %s", (long long)n + 1, (long long)count,
                         nn_json_brief(names[n]).text);
        else ok = shard && add(s, shard, error, error_size);
        free(shard);
    }
    ok = ok && check_index(s, &index, &to);
    free(names);
    nn_config_free(&index);
    return ok;
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

static bool has_gguf(const char *folder)
{
    DIR *dir = opendir(folder);
    bool found = false;
    for (const struct dirent *e; dir && !found && (e = readdir(dir));) {
        const char *dot = strrchr(e->d_name, '.');
        found = dot && strcmp(dot, ".gguf") == 0;
    }
    if (dir) closedir(dir);
    return found;
}

static bool open_folder(nn_shards *s, const char *folder, char *error, size_t error_size)
{
    static const char one[] = "model.safetensors", many[] = "model.safetensors.index.json";
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                                         "flax_model.msgpack", "model.onnx"};
    nn_failure to = {folder, error, error_size};
    for (int n = 0; n < 2; n++) {
        const char *name = n ? many : one;
        if (!exists(folder, name)) continue;
        char *path = join(folder, name);
        bool ok = path && (n ? open_index(s, folder, path, error, error_size) : add(s, path, error, error_size));
        free(path);
        return ok;
    }
    if (exists(folder, "adapter_config.json"))
        return nn_fail(
            &to, "holds an adapter of PEFT (LoRA), not its base model; merge_and_unload() makes one model of both");
    for (size_t n = 0; n < sizeof others / sizeof *others; n++)
        if (exists(folder, others[n]))
            return nn_fail(&to, "has %s, which cannot be read; save the model with safe_serialization=True", others[n]);
    return nn_fail(&to, "has neither %s nor %s%s", one, many,
                   has_gguf(folder) ? "; GGUF files cannot be read, the safetensors files that they were made from can"
                                    : "");
}

bool nn_shards_open(nn_shards *s, const char *path, bool folder, char *error, size_t error_size)
{
    *s = (nn_shards){0};
    if (folder ? open_folder(s, path, error, error_size) : add(s, path, error, error_size)) return true;
    nn_shards_close(s);
    return false;
}

void nn_shards_close(nn_shards *s)
{
    for (int64_t n = 0; n < s->count; n++) nn_safetensors_free(s->file[n]);
    free(s->file);
    *s = (nn_shards){0};
}

const nn_safetensors_tensor *nn_shards_find(const nn_shards *s, const char *name)
{
    const nn_safetensors_tensor *found = NULL;
    for (int64_t n = 0; !found && n < s->count; n++) found = nn_safetensors_find(s->file[n], name);
    return found;
}

int64_t nn_shards_tensors(const nn_shards *s)
{
    int64_t count = 0;
    for (int64_t n = 0; n < s->count; n++) count += (int64_t)nn_safetensors_count(s->file[n]);
    return count;
}

const nn_safetensors_tensor *nn_shards_get(const nn_shards *s, int64_t n)
{
    for (int64_t k = 0; k < s->count; k++) {
        int64_t here = (int64_t)nn_safetensors_count(s->file[k]);
        if (n < here) return nn_safetensors_get(s->file[k], (size_t)n);
        n -= here;
    }
    return NULL;
}
