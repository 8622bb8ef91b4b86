/* The tokens of queries and keys: lines of a file, or JSON arrays in the metadata of the weights. */
#include "cli/common/cli.h"
#include "io/json.h"
#include "io/source.h"
#include "cli/view/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MOST = 1 << 26 };

typedef struct list {
    char *bytes, **words;
    int64_t count;
} list;

static void list_free(list *l)
{
    free(l->bytes);
    free(l->words);
    *l = (list){0};
}

/* Allocates room for the bytes and that many words. Prints an error and returns false on failure. */
static bool list_make(list *l, size_t bytes, size_t words)
{
    *l = (list){malloc(bytes + 1), malloc((words + 1) * sizeof(char *)), 0};
    if (l->bytes && l->words) return true;
    list_free(l);
    cli_error("out of memory");
    return false;
}

/* ---- Sources ---------------------------------------------------------------------------------------------------- */

/* One token per line; a line may be empty. */
static bool from_lines(list *l, const char *path)
{
    char error[600];
    size_t size = 0, lines = 1;
    char *text;
    nn_source_text(&text, path, FILE_MOST, &size, error, sizeof error);
    if (!text) cli_error("%s", error);
    for (const char *c = text; text && *c; c++) lines += *c == '\n';
    bool ok = text && list_make(l, size, lines);
    if (ok) {
        memcpy(l->bytes, text, size + 1);
        for (char *at = l->bytes, *end; *at; at = end) {
            l->words[l->count++] = at;
            end = at + strcspn(at, "\n");
            if (end > at && end[-1] == '\r') end[-1] = 0;
            if (*end) *end++ = 0;
        }
    }
    free(text);
    return ok;
}

/* An array of strings. */
static bool from_json(list *l, const view_weights *w, const char *key, const char *text)
{
    size_t size = strlen(text), used = 0, length = 0;
    nn_json j = nn_json_open(text, size);
    if (!list_make(l, size, size)) return false;
    nn_json_enter(&j, '[');
    while (nn_json_more(&j, ']')) {
        l->words[l->count++] = l->bytes + used;
        if (nn_json_string(&j, l->bytes + used, &length)) used += length + 1;
    }
    if (nn_json_end(&j)) return true;
    cli_error("%s: metadata \"%s\" must be a JSON array of strings: %s", w->path, key, j.why);
    list_free(l);
    return false;
}

/* ---- Axes ------------------------------------------------------------------------------------------------------- */

/* Assigns a list to the axes whose length it has. Prints an error and returns false if it fits none. */
static bool keep_tokens(view_tokens *t, int slot, list *l, const view_weights *w, bool queries, bool keys,
                        const char *origin)
{
    bool fits_queries = queries && l->count == w->queries, fits_keys = keys && l->count == w->keys;
    t->bytes[slot] = l->bytes;
    t->lists[slot] = l->words;
    if (fits_queries) t->queries = l->words;
    if (fits_keys) t->keys = l->words;
    if (fits_queries || fits_keys) return true;
    return cli_error("%s has %" PRId64 " tokens, but %s has %" PRId64 " queries and %" PRId64 " keys", origin, l->count,
                     w->name, w->queries, w->keys);
}

static bool keep_metadata(view_tokens *t, int slot, const view_weights *w, const char *key, bool queries, bool keys)
{
    list l;
    char origin[600];
    const char *text = nn_safetensors_metadata(w->file, key);
    if (!text) return true;
    snprintf(origin, sizeof origin, "%s: metadata \"%s\"", w->path, key);
    return from_json(&l, w, key, text) && keep_tokens(t, slot, &l, w, queries, keys, origin);
}

bool view_tokens_read(view_tokens *t, const view_weights *w)
{
    list l;
    *t = (view_tokens){0};
    if (w->token_file) return from_lines(&l, w->token_file) && keep_tokens(t, 0, &l, w, true, true, w->token_file);
    if (nn_safetensors_metadata(w->file, "tokens")) return keep_metadata(t, 0, w, "tokens", true, true);
    return keep_metadata(t, 0, w, "query_tokens", true, false) && keep_metadata(t, 1, w, "key_tokens", false, true);
}

void view_tokens_free(view_tokens *t)
{
    for (int i = 0; i < 2; i++) {
        free(t->lists[i]);
        free(t->bytes[i]);
    }
    *t = (view_tokens){0};
}
