#include "cli/heads/conllu.h"
#include "io/source.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COLUMNS = 10,
    ID = 0,
    FORM = 1,
    HEAD = 6,
    DEPREL = 7,
    MISC = 9,
    FILE_MOST = 1 << 28,
    WORDS_MOST = 4096,
    RELATIONS_MOST = 1 << 14,
    NAME = 64
};

/* A word of the sentence that is being read. */
typedef struct token {
    int64_t head;      /* from 1; 0: the root; -1: none */
    int64_t relation;  /* of that */
    int64_t stretch;   /* of the sentence, from 0 */
    char entity[NAME]; /* an ID, or "" */
} token;

typedef struct reader {
    conllu *c;
    const char *path;
    char *error;
    size_t error_size;
    int64_t line;
    token tokens[WORDS_MOST]; /* of the present sentence */
    int64_t count, stretches;
    int64_t shared_until; /* the last word of the present multiword token */
    bool glued;           /* no space before the next word */
    size_t word_room, link_room, sentence_room, text_room, relation_room;
    int32_t by_name[RELATIONS_MOST]; /* numbers of relations, by their names */
} reader;

__attribute__((format(printf, 2, 3))) static bool fail(reader *r, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(r->error, r->error_size, "%s, line %" PRId64 ": %s", r->path, r->line, text);
    return false;
}

/* Makes room for one more element, of `size` bytes. */
static bool grow_list(void **list, size_t *room, size_t count, size_t size)
{
    if (count < *room) return true;
    size_t more = *room ? 2 * *room : 64;
    void *larger = realloc(*list, more * size);
    if (!larger) return false;
    *list = larger, *room = more;
    return true;
}

/* ---- One word --------------------------------------------------------------------------------------------------- */

/* The number of a relation of that name, which is added if it is new; -1 after an error. */
static int64_t relation_of(reader *r, const char *name)
{
    conllu *c = r->c;
    int64_t low = 0, high = c->relation_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name, c->relations[r->by_name[middle]]);
        if (!order) return r->by_name[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    if (c->relation_count == RELATIONS_MOST)
        return fail(r, "has more than %d different relations; is DEPREL its eighth column?", RELATIONS_MOST) - 1;
    if (!grow_list((void **)&c->relations, &r->relation_room, (size_t)c->relation_count, sizeof *c->relations) ||
        !(c->relations[c->relation_count] = strdup(name)))
        return fail(r, "not enough memory") - 1;
    memmove(r->by_name + low + 1, r->by_name + low, (size_t)(c->relation_count - low) * sizeof *r->by_name);
    r->by_name[low] = (int32_t)c->relation_count;
    return c->relation_count++;
}

/* Appends the characters of a word or of a multiword token, with a space before it if there is one. */
static bool add_stretch(reader *r, const char *form, const char *misc)
{
    conllu *c = r->c;
    size_t length = strlen(form), begin = (size_t)c->sentences[c->count].text;
    bool space = c->size > begin && !r->glued;
    while (c->size + length + 2 > r->text_room) {
        char *more = realloc(c->text, r->text_room = 2 * r->text_room + 4096);
        if (!more) return fail(r, "not enough memory");
        c->text = more;
    }
    if (!grow_list((void **)&c->words, &r->word_room, (size_t)c->word_count, sizeof *c->words))
        return fail(r, "not enough memory");
    if (space) c->text[c->size++] = ' ';
    memcpy(c->text + c->size, form, length + 1);
    c->words[c->word_count++] = (conllu_word){(int64_t)(c->size - begin), (int64_t)(c->size + length - begin)};
    c->size += length;
    r->stretches++;
    r->glued = strstr(misc, "SpaceAfter=No") != NULL;
    return true;
}

/* The ID of Coref=ID or Entity=(ID-...; "" if there is none. */
static void read_entity(char out[NAME], const char *misc)
{
    const char *at = strstr(misc, "Coref="), *ends = "|";
    out[0] = 0;
    if (at) at += strlen("Coref=");
    else if ((at = strstr(misc, "Entity="))) {
        at = strchr(at, '(');
        const char *bar = strchr(misc, '|');
        if (at && bar && bar > misc && at > bar && !strstr(bar, "Entity=")) at = NULL;
        if (at) at++, ends = "-()|";
    }
    if (at) snprintf(out, NAME, "%.*s", (int)strcspn(at, ends), at);
}

static bool read_number(const char *text, int64_t *number)
{
    char *end;
    long long n = strtoll(text, &end, 10);
    *number = n;
    return end != text && !*end && n >= 0 && n <= WORDS_MOST;
}

static bool add_word(reader *r, char *column[COLUMNS])
{
    int64_t id, head = -1;
    if (!read_number(column[ID], &id) || id != r->count + 1)
        return fail(r, "ID is '%.20s', not %" PRId64, column[ID], r->count + 1);
    if (r->count == WORDS_MOST) return fail(r, "a sentence has more than %d words", WORDS_MOST);
    if (strcmp(column[HEAD], "_") != 0 && (!read_number(column[HEAD], &head) || head == id))
        return fail(r, "HEAD is '%.20s', which is no other word", column[HEAD]);
    if (!*column[FORM]) return fail(r, "FORM is empty");
    if (id > r->shared_until && !add_stretch(r, column[FORM], column[MISC])) return false;
    token *t = &r->tokens[r->count++];
    *t = (token){.head = head, .stretch = r->stretches - 1};
    read_entity(t->entity, column[MISC]);
    return head <= 0 || (t->relation = relation_of(r, column[DEPREL])) >= 0;
}

/* A line of the file: a multiword token, an empty node, or a word. */
static bool add_line(reader *r, char *line)
{
    char *column[COLUMNS];
    int n = 0;
    for (char *at = line; n < COLUMNS; n++) {
        column[n] = at;
        at += strcspn(at, "\t");
        if (!*at) {
            n++;
            break;
        }
        *at++ = 0;
        if (n == COLUMNS - 1) return fail(r, "has more than %d columns", COLUMNS);
    }
    if (n < COLUMNS)
        return fail(r, "has %d column%s, not %d separated by tabs; is it CoNLL-U?", n, n == 1 ? "" : "s", COLUMNS);
    if (strchr(column[ID], '.')) return true;
    char *dash = strchr(column[ID], '-');
    if (!dash) return add_word(r, column);
    int64_t first, last;
    *dash = 0;
    if (!read_number(column[ID], &first) || !read_number(dash + 1, &last) || first != r->count + 1 || last < first)
        return fail(r, "ID is '%.20s-%.20s', a range that does not begin with word %" PRId64, column[ID], dash + 1,
                    r->count + 1);
    if (!*column[FORM]) return fail(r, "FORM is empty");
    r->shared_until = last;
    return add_stretch(r, column[FORM], column[MISC]);
}

/* ---- One sentence ----------------------------------------------------------------------------------------------- */

static bool add_link(reader *r, int64_t from, int64_t to, int64_t relation)
{
    conllu *c = r->c;
    if (r->tokens[from].stretch == r->tokens[to].stretch) return true; /* of one multiword token */
    if (relation < 0) return false;
    if (!grow_list((void **)&c->links, &r->link_room, (size_t)c->link_count, sizeof *c->links))
        return fail(r, "not enough memory");
    c->links[c->link_count++] = (conllu_link){c->count, r->tokens[from].stretch, r->tokens[to].stretch, relation};
    return true;
}

static bool begin_sentence(reader *r)
{
    conllu *c = r->c;
    r->count = r->stretches = r->shared_until = 0, r->glued = false;
    if (!grow_list((void **)&c->sentences, &r->sentence_room, (size_t)c->count, sizeof *c->sentences))
        return fail(r, "not enough memory");
    c->sentences[c->count] = (conllu_sentence){.text = (int64_t)c->size, .word = c->word_count};
    return true;
}

static bool end_sentence(reader *r)
{
    conllu *c = r->c;
    if (!r->count) return true;
    if (r->shared_until > r->count) return fail(r, "the sentence ends inside a multiword token");
    for (int64_t n = 0; n < r->count; n++) {
        const token *t = &r->tokens[n];
        if (t->head > r->count)
            return fail(r, "HEAD of word %" PRId64 " is %" PRId64 ", but the sentence has %" PRId64 " words", n + 1,
                        t->head, r->count);
        if (t->head > 0 && !add_link(r, n, t->head - 1, t->relation)) return false;
        int64_t before = n - 1;
        while (*t->entity && before >= 0 && strcmp(r->tokens[before].entity, t->entity) != 0) before--;
        if (*t->entity && before >= 0 && !add_link(r, n, before, relation_of(r, "coref"))) return false;
    }
    conllu_sentence *s = &c->sentences[c->count++];
    s->length = (int64_t)c->size - s->text;
    s->words = r->stretches;
    return begin_sentence(r);
}

/* ---- The file --------------------------------------------------------------------------------------------------- */

static bool read_all(reader *r, char *text, int64_t most)
{
    if (!begin_sentence(r)) return false;
    for (char *at = text, *next; *at && r->c->count < most; at = next) {
        size_t length = strcspn(at, "\n");
        next = at + length + (at[length] == '\n');
        at[length] = 0;
        if (length && at[length - 1] == '\r') at[--length] = 0;
        r->line++;
        if (!length ? !end_sentence(r) : at[0] != '#' && !add_line(r, at)) return false;
    }
    if (r->c->count < most && !end_sentence(r)) return false;
    if (r->c->link_count) return true;
    snprintf(r->error, r->error_size, "%s: has no %s", r->path,
             r->c->count ? "dependency and no coreference" : "sentence; is it CoNLL-U?");
    return false;
}

bool conllu_read(conllu *c, const char *path, int64_t most, char *error, size_t error_size)
{
    *c = (conllu){0};
    reader *r = calloc(1, sizeof *r);
    char *text = NULL;
    if (r) nn_source_text(&text, path, FILE_MOST, NULL, error, error_size);
    if (!r) snprintf(error, error_size, "%s: not enough memory", path);
    bool ok = text;
    if (ok) {
        r->c = c, r->path = path, r->error = error, r->error_size = error_size;
        ok = read_all(r, text, most);
    }
    free(text);
    free(r);
    if (!ok) conllu_free(c);
    return ok;
}

void conllu_free(conllu *c)
{
    for (int64_t n = 0; n < c->relation_count; n++) free(c->relations[n]);
    free(c->relations);
    free(c->text);
    free(c->sentences);
    free(c->words);
    free(c->links);
    *c = (conllu){0};
}
