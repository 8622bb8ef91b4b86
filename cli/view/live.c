/* A page that runs a text model holds its files as they are, so that it opens what the command has opened: folder "model" has the
 * model, folder "tokenizer" the tokenizers. */
#include "cli/view/live.h"
#include "cli/common/cli.h"
#include "cli/common/language.h"
#include "cli/common/model.h"
#include "cli/view/page.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES = 64, PATH = 4096, MEGA = 1000000, ROOM = 64 }; /* the last in megabytes */

typedef struct parcel {
    char *paths[FILES];
    const char *folders[FILES]; /* in the page */
    int count;
    int64_t bytes;
    bool no_memory;
    char model[PATH], tokenizers[2][PATH]; /* paths in the page */
} parcel;

static void parcel_free(parcel *p)
{
    for (int n = 0; n < p->count; n++) free(p->paths[n]);
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

/* Adds the file `name` of a folder, once, if it is there. Returns whether it is. */
static bool add_file(parcel *p, const char *to, const char *folder, const char *name)
{
    struct stat about;
    char path[PATH];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) return false;
    for (int n = 0; n < p->count; n++)
        if (strcmp(p->paths[n], path) == 0 && strcmp(p->folders[n], to) == 0) return true;
    if (p->count == FILES || p->no_memory) return false;
    p->no_memory = !(p->paths[p->count] = strdup(path));
    if (p->no_memory) return false;
    p->folders[p->count++] = to;
    p->bytes += about.st_size;
    return true;
}

/* The folder of a file. */
static const char *folder_of(char folder[PATH], const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(folder, PATH, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return *folder ? folder : "/";
}

static bool ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), tail = strlen(ending);
    return length >= tail && strcmp(name + length - tail, ending) == 0;
}

/* Adds the files of a folder with that ending, without tokenizers. Returns how many there are; `last` gets the name of one. */
static int add_files_ending(parcel *p, const char *folder, const char *ending, char last[PATH])
{
    int count = 0;
    DIR *dir = opendir(folder);
    p->no_memory = p->no_memory || (!dir && errno == ENOMEM);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (!ends_with(e->d_name, ending) || !strcmp(e->d_name, "tokenizer.bin")) continue;
        if (!add_file(p, "model", folder, e->d_name)) continue;
        count++;
        snprintf(last, PATH, "%s", e->d_name);
    }
    if (dir) closedir(dir);
    return count;
}

/* A folder of transformers, or one with a file of llama2.c; or a file. */
static bool take_model(parcel *p, const char *path)
{
    struct stat about;
    char folder[PATH], name[PATH] = "";
    bool is_folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    const char *in = is_folder ? path : folder_of(folder, path);
    bool config = add_file(p, "model", in, "config.json");
    snprintf(p->model, sizeof p->model, "model");
    if (is_folder && config) {
        add_file(p, "model", in, "generation_config.json");
        if (add_file(p, "model", in, "model.safetensors")) return true;
        return add_file(p, "model", in, "model.safetensors.index.json") &&
               add_files_ending(p, in, ".safetensors", name);
    }
    if (is_folder ? add_files_ending(p, in, ".bin", name) != 1 : !add_file(p, "model", in, view_title(path)))
        return false;
    snprintf(p->model, sizeof p->model, "model/%.3000s", is_folder ? name : view_title(path));
    return true;
}

/* What a tokenizer was read from, and the files that are read beside it. */
static bool take_tokenizer(parcel *p, int side, mha_context *ctx, const mha_tokenizer *tokenizer)
{
    static const char *const beside[] = {"tokenizer_config.json", "special_tokens_map.json"};
    static const char *const parts[] = {"vocab.json", "merges.txt", "encoder.json", "vocab.bpe"};
    mha_tokenizer_info about = {.size = sizeof about};
    char folder[PATH];
    if (!tokenizer || mha_tokenizer_about(ctx, tokenizer, &about) || !about.file) return false;
    const char *in = folder_of(folder, about.file), *name = view_title(about.file);
    for (size_t n = 0; n < sizeof beside / sizeof *beside; n++) add_file(p, "tokenizer", in, beside[n]);
    for (size_t n = 0; !ends_with(name, "tokenizer.json") && n < sizeof parts / sizeof *parts; n++)
        add_file(p, "tokenizer", in, parts[n]);
    snprintf(p->tokenizers[side], PATH, "tokenizer/%.3000s", name);
    return add_file(p, "tokenizer", in, name);
}

/* ---- The object ------------------------------------------------------------------------------------------------- */

/* Why a page cannot run the model; NULL if it can. */
static const char *obstacle(parcel *p, const view_text *v, const texts *t, char line[120])
{
    if (v->audio) return "The model reads audio, which pages do not take.";
    if (!view_text_engine_size) return "It was written by an mha that was built without its WebAssembly engine.";
    const char *path = mha_model_path(t->model); /* of a name, the folder that was found */
    if (!path || !take_model(p, path) || !take_tokenizer(p, 0, t->ctx, t->in) ||
        (t->pair && !take_tokenizer(p, 1, t->ctx, t->out)))
        return "The files of the model or of its tokenizer could not be found again.";
    if (p->bytes <= (int64_t)ROOM * MEGA) return NULL;
    int64_t tenths = (p->bytes + MEGA / 10 - 1) / (MEGA / 10); /* rounded up */
    snprintf(line, 120, "The model and its tokenizer have %.1f MB; pages hold up to %d MB.", (double)tenths / 10, ROOM);
    return line;
}

static bool put_files(nn_buffer *out, const parcel *p)
{
    bool ok = true;
    nn_buffer_puts(out, "{\"files\":{");
    for (int n = 0; ok && n < p->count; n++) {
        char name[PATH];
        nn_buffer bytes = {0};
        ok = language_read(&bytes, p->paths[n]);
        snprintf(name, sizeof name, "%s/%.3000s", p->folders[n], view_title(p->paths[n]));
        if (n) nn_buffer_puts(out, ",\n");
        view_string(out, name);
        nn_buffer_putc(out, ':');
        if (ok) view_base64(out, bytes.bytes, bytes.size);
        nn_buffer_free(&bytes);
    }
    nn_buffer_putc(out, '}');
    return ok;
}

static void put_field(nn_buffer *out, const char *name, const char *text)
{
    nn_buffer_printf(out, ",\"%s\":", name);
    view_string(out, text);
}

/* What the decoder reads, as a text: what was given, or what the model has generated. */
static bool put_target(nn_buffer *out, const view_text *v, const texts *t)
{
    size_t length = 0;
    if (!v->target && mha_tokenizer_decode(t->ctx, t->out, NULL, 0, &length, t->tokens[1], t->starts[1][1], false))
        return cli_refuse("%s", cli_reason(t->ctx));
    char *text = v->target ? strdup(v->target) : malloc(length + 1);
    if (!text) return cli_refuse("not enough memory for the text");
    if (!v->target)
        mha_tokenizer_decode(t->ctx, t->out, text, length + 1, &length, t->tokens[1], t->starts[1][1], false);
    put_field(out, "target", text);
    free(text);
    return true;
}

/* How `mha generate --sample` draws tokens with this model. Where that is an error, as with a temperature of 0 in its
 * generation_config.json, the most likely token is taken. */
static void put_settings(nn_buffer *out, const texts *t)
{
    mha_generation_options o = MHA_GENERATION_DEFAULTS;
    o.method = MHA_GENERATE_SAMPLE;
    mha_status status = mha_generation_resolve(t->ctx, &o, t->model);
    if (status) o.temperature = 0, o.top_k = 0, o.top_p = 1;
    out->failed = out->failed || status == MHA_NO_MEMORY;
    nn_buffer_printf(out, ",\"settings\":{\"temperature\":%.9g,\"top_k\":%lld,\"top_p\":%.9g,\"seed\":%llu}",
                     (double)o.temperature, (long long)o.top_k, (double)o.top_p, (unsigned long long)o.seed);
}

bool view_live(nn_buffer *out, const view_text *v, const texts *t, bool *runs)
{
    char line[120];
    parcel p = {.count = 0};
    const char *why = obstacle(&p, v, t, line);
    mha_model_info about = model_about(t->ctx, t->model);
    bool ok = true, predicts = about.head && !about.pooled && about.classes == about.vocabulary;
    *runs = !why;
    if (p.no_memory) ok = cli_refuse("not enough memory for the files of the model");
    if (why) {
        nn_buffer_puts(out, "{\"why\":");
        view_string(out, why);
    } else {
        ok = ok && put_files(out, &p);
        put_field(out, "model", p.model);
        put_field(out, "tokenizer", p.tokenizers[0]);
        if (t->pair) put_field(out, "target_tokenizer", p.tokenizers[1]);
        put_field(out, "kind", t->pair ? "pair" : about.causal && predicts ? "decoder" : "encoder");
        nn_buffer_printf(out,
                         ",\"vocabulary\":%" PRId64 ",\"positions\":%" PRId64 ",\"context\":%" PRId64 ",\"mask\":%d",
                         about.classes, about.positions, about.context,
                         (int)(about.causal || !predicts ? -1 : language_mask(t->ctx, t->in)));
        const char *description = mha_model_describe(t->model);
        if (!description) ok = cli_refuse("not enough memory for the model's description");
        nn_buffer_printf(out, ",\"description\":%s", description ? description : "null");
        put_settings(out, t);
        put_field(out, "text", v->text);
        ok = ok && (!t->pair || put_target(out, v, t));
    }
    nn_buffer_putc(out, '}');
    parcel_free(&p);
    return ok;
}
