/* From the syntax of Oniguruma (Ruby) to that of PCRE2, where they differ:
 *
 *     \w \b       Unicode's word characters, marks included        spelled out: PCRE2's are letters, numbers and _
 *     \s          Unicode's white space                            in PCRE2 U+180E, too, which has not been one since 6.3
 *     \h \H       hexadecimal digits                               in PCRE2 horizontal space
 *     \v          a vertical tab                                   in PCRE2 any vertical space
 *     \uXXXX      a code point                                     \x{XXXX}
 *     (?m)        the dot matches a line feed                      (?s)
 *     {,n}        at most n times                                  {0,n}
 *     \p{Letter}  long names of categories                         \p{L}
 *     \p{Han}     characters of a script                           \p{sc:Han}: else those used with it, too
 *     [:punct:]   punctuation and symbols                          spelled out, as are the others in brackets
 *     [a[bc]]     a class in a class, and intersections with &&    alternatives, and conditions that look ahead
 *
 * ^ and $ match at every line, which an option of the compilation covers. A class becomes an expression that matches one
 * character. */
#include "text/expression.h"

#include <stdio.h>
#include <string.h>

/* Members of classes. Outside of a class, \w has some characters of Latin-1 more. */
#define WORD                                                                                                        \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{" \
    "1f189}"
#define ALONE WORD "\\xb2\\xb3\\xb9\\xbc-\\xbe"
#define HEX   "0-9a-fA-F"
#define SPACE "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

typedef struct reader {
    const char *at;
    nn_buffer *out;
    const char *problem; /* NULL: none */
    int depth;
} reader;

/* Escapes that differ: their members outside and inside of a class, and whether they are all others. */
static const struct {
    char letter;
    bool others;
    const char *alone, *members;
} escapes[] = {{'w', false, ALONE, WORD},     {'W', true, ALONE, WORD}, {'s', false, SPACE, SPACE},
               {'S', true, SPACE, SPACE},     {'h', false, HEX, HEX},   {'H', true, HEX, HEX},
               {'v', false, "\\x0b", "\\x0b"}};

/* Names of classes: in brackets, [:alpha:], and as properties, \p{Alpha}, in lower case without _ and space. */
static const struct {
    const char *name, *brackets, *property; /* NULL: not there */
} classes[] = {
    {"alpha", "\\p{Alphabetic}", "\\p{Alphabetic}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}", "\\p{Alphabetic}\\p{Nd}"},
    {"digit", "\\p{Nd}", "\\p{Nd}"},
    {"space", SPACE, SPACE},
    {"blank", "\\p{Zs}\\t", "\\p{Zs}\\t"},
    {"upper", "\\p{Uppercase}", "\\p{Uppercase}"},
    {"lower", "\\p{Lowercase}", "\\p{Lowercase}"},
    {"punct", "\\p{P}\\p{S}", "\\p{P}"},
    {"cntrl", "\\p{Cc}", "\\p{Cc}"},
    {"graph", "[:graph:]", "[:graph:]"},
    {"print", "[:print:]", "[:print:]"},
    {"xdigit", HEX, HEX},
    {"word", WORD, ALONE},
    {"ascii", "\\x00-\\x7f", "\\x00-\\x7f"},
    {"any", NULL, "\\x{0}-\\x{10ffff}"},
    {"letter", NULL, "\\p{L}"},
    {"mark", NULL, "\\p{M}"},
    {"number", NULL, "\\p{N}"},
    {"punctuation", NULL, "\\p{P}"},
    {"symbol", NULL, "\\p{S}"},
    {"separator", NULL, "\\p{Z}"},
    {"other", NULL, "\\p{C}"},
    {"uppercaseletter", NULL, "\\p{Lu}"},
    {"lowercaseletter", NULL, "\\p{Ll}"},
    {"titlecaseletter", NULL, "\\p{Lt}"},
    {"modifierletter", NULL, "\\p{Lm}"},
    {"otherletter", NULL, "\\p{Lo}"},
    {"decimalnumber", NULL, "\\p{Nd}"},
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* Properties of PCRE2 that are neither categories nor scripts. Scripts need a prefix: without, it takes their extensions. */
static const char *const binary[] = {"alphabetic",
                                     "whitespace",
                                     "uppercase",
                                     "lowercase",
                                     "emoji",
                                     "ideographic",
                                     "dash",
                                     "hexdigit",
                                     "math",
                                     "cased",
                                     "extendedpictographic",
                                     "emojipresentation",
                                     "emojimodifier",
                                     "idstart",
                                     "idcontinue",
                                     "xidstart",
                                     "xidcontinue"};

/* A name in lower case, without what does not count. */
static void fold(char out[64], const char *from, const char *to)
{
    size_t n = 0;
    for (; from < to && n + 1 < 64; from++)
        if (*from != ' ' && *from != '_' && *from != '-')
            out[n++] = (char)(*from >= 'A' && *from <= 'Z' ? *from + 32 : *from);
    out[n] = 0;
}

/* \p{name}, after the p. Inside of a class, what is not a list of members goes to the alternatives. */
static void property(reader *r, nn_buffer *out, bool others, bool inside, nn_buffer *alternatives)
{
    const char *close = *r->at == '{' ? strchr(r->at, '}') : NULL;
    char name[64];
    if (!close) {
        nn_buffer_printf(out, "\\%c", others ? 'P' : 'p');
        return;
    }
    const char *from = r->at + 1;
    if (*from == '^') others = !others, from++;
    fold(name, from, close);
    r->at = close + 1;
    for (int i = 0; i < CLASSES; i++) {
        if (strcmp(name, classes[i].name) != 0) continue;
        if (!inside) nn_buffer_printf(out, others ? "[^%s]" : "[%s]", classes[i].property);
        else if (others) nn_buffer_printf(alternatives, "|[^%s]", classes[i].property);
        else nn_buffer_puts(out, classes[i].property);
        return;
    }
    bool script = strlen(name) > 2 && !strchr(name, '=') && !strchr(name, ':');
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++) script = script && strcmp(name, binary[i]) != 0;
    nn_buffer_printf(out, "\\%c{%s%s}", others ? 'P' : 'p', script ? "sc:" : "", strlen(name) > 2 ? name : "");
    if (strlen(name) > 2) return;
    out->size -= 1; /* categories keep their case */
    nn_buffer_put(out, from, (size_t)(close - from) + 1);
}

/* What follows a backslash and is the same inside and outside of classes. False if it is none of these. */
static bool common_escape(reader *r, nn_buffer *out, nn_buffer *alternatives)
{
    char c = *r->at;
    if (c == 'p' || c == 'P') {
        r->at++;
        property(r, out, c == 'P', alternatives != NULL, alternatives);
        return true;
    }
    if (c == 'u') {
        size_t n = strspn(r->at + 1, "0123456789abcdefABCDEF");
        if (n < 4) return false;
        nn_buffer_printf(out, "\\x{%.4s}", r->at + 1);
        r->at += 5;
        return true;
    }
    return false;
}

static void copy_escape(reader *r, nn_buffer *out)
{
    nn_buffer_putc(out, '\\');
    if (!*r->at) {
        r->problem = "a backslash at its end";
        return;
    }
    nn_buffer_putc(out, *r->at++);
}

/* ---- Classes ----------------------------------------------------------------------------------------------------- */

/* One operand of &&: members that fit into one class of PCRE2, and other sets beside them. */
typedef struct operand {
    nn_buffer members, others; /* others: alternatives, each after a | */
} operand;

typedef struct set {
    bool negated, plain; /* plain: `operand` alone, without others */
    operand last;
    nn_buffer before; /* conditions of the operands before the last one */
} set;

static void class_body(reader *r, set *s);

static void free_set(set *s)
{
    nn_buffer_free(&s->last.members);
    nn_buffer_free(&s->last.others);
    nn_buffer_free(&s->before);
}

static void put_operand(nn_buffer *out, const operand *o)
{
    nn_buffer_puts(out, "(?:");
    if (o->members.size) {
        nn_buffer_putc(out, '[');
        nn_buffer_put(out, o->members.bytes, o->members.size);
        nn_buffer_putc(out, ']');
    } else {
        nn_buffer_puts(out, "(?!)"); /* no character */
    }
    if (o->others.size) nn_buffer_put(out, o->others.bytes, o->others.size);
    nn_buffer_putc(out, ')');
}

static void put_set(nn_buffer *out, const set *s)
{
    if (s->plain && s->last.members.size) {
        nn_buffer_puts(out, s->negated ? "[^" : "[");
        nn_buffer_put(out, s->last.members.bytes, s->last.members.size);
        nn_buffer_putc(out, ']');
        return;
    }
    nn_buffer_puts(out, s->negated ? "(?:(?!" : "(?:");
    if (s->before.size) nn_buffer_put(out, s->before.bytes, s->before.size);
    put_operand(out, &s->last);
    nn_buffer_puts(out, s->negated ? ")(?s:.))" : ")");
}

/* A class inside a class: its members join those around it, or it becomes an alternative. */
static void nested(reader *r, operand *into)
{
    set inner = {0};
    class_body(r, &inner);
    if (inner.plain && !inner.negated && inner.last.members.size) {
        nn_buffer_put(&into->members, inner.last.members.bytes, inner.last.members.size);
    } else {
        nn_buffer_putc(&into->others, '|');
        put_set(&into->others, &inner);
    }
    free_set(&inner);
}

static void class_escape(reader *r, operand *into)
{
    r->at++;
    if (common_escape(r, &into->members, &into->others)) return;
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        if (*r->at != escapes[i].letter) continue;
        r->at++;
        if (escapes[i].others) nn_buffer_printf(&into->others, "|[^%s]", escapes[i].members);
        else nn_buffer_puts(&into->members, escapes[i].members);
        return;
    }
    copy_escape(r, &into->members);
}

/* [:name:] or [:^name:], inside of a class. False if there is none. */
static bool named_class(reader *r, operand *into)
{
    char name[64];
    const char *close = r->at[0] == '[' && r->at[1] == ':' ? strstr(r->at, ":]") : NULL;
    if (!close) return false;
    bool others = r->at[2] == '^';
    fold(name, r->at + 2 + others, close);
    for (int i = 0; i < CLASSES; i++) {
        if (!classes[i].brackets || strcmp(name, classes[i].name) != 0) continue;
        r->at = close + 2;
        if (others) nn_buffer_printf(&into->others, "|[^%s]", classes[i].brackets);
        else nn_buffer_puts(&into->members, classes[i].brackets);
        return true;
    }
    return false;
}

/* After the opening bracket, to behind the closing one. */
static void class_body(reader *r, set *s)
{
    if (++r->depth > 20) r->problem = "classes nested more than 20 deep";
    s->negated = *r->at == '^';
    if (s->negated) r->at++;
    bool first = true;
    for (; !r->problem && (first || *r->at != ']'); first = false) {
        if (!*r->at) r->problem = "a class without its closing bracket";
        else if (named_class(r, &s->last)) continue;
        else if (*r->at == '[') {
            r->at++;
            nested(r, &s->last);
        } else if (r->at[0] == '&' && r->at[1] == '&') {
            r->at += 2;
            nn_buffer_puts(&s->before, "(?=");
            put_operand(&s->before, &s->last);
            nn_buffer_putc(&s->before, ')');
            s->last.members.size = s->last.others.size = 0;
        } else if (*r->at == '\\') {
            class_escape(r, &s->last);
        } else {
            if (*r->at == ']') nn_buffer_putc(&s->last.members, '\\');
            nn_buffer_putc(&s->last.members, *r->at++);
        }
    }
    if (!r->problem) r->at++;
    s->plain = !s->before.size && !s->last.others.size;
    r->depth--;
}

/* ---- Outside of classes -------------------------------------------------------------------------------------------- */

static void escape(reader *r)
{
    r->at++;
    if (common_escape(r, r->out, NULL)) return;
    if (*r->at == 'b') nn_buffer_puts(r->out, "(?:(?<=[" ALONE "])(?![" ALONE "])|(?<![" ALONE "])(?=[" ALONE "]))");
    else if (*r->at == 'B')
        nn_buffer_puts(r->out, "(?:(?<=[" ALONE "])(?=[" ALONE "])|(?<![" ALONE "])(?![" ALONE "]))");
    else {
        for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
            if (*r->at == escapes[i].letter) {
                r->at++;
                nn_buffer_printf(r->out, escapes[i].others ? "[^%s]" : "[%s]", escapes[i].alone);
                return;
            }
        copy_escape(r, r->out);
        return;
    }
    r->at++;
}

/* (?imx-imx) and (?imx-imx: with m for s; any other group as it is. */
static void group(reader *r)
{
    nn_buffer_putc(r->out, *r->at++);
    if (*r->at != '?') return;
    size_t n = strspn(r->at + 1, "imx-");
    if (!n || (r->at[n + 1] != ')' && r->at[n + 1] != ':')) return;
    nn_buffer_putc(r->out, *r->at++);
    for (; n; n--, r->at++) nn_buffer_putc(r->out, (char)(*r->at == 'm' ? 's' : *r->at));
}

static void repeat(reader *r)
{
    size_t n = strspn(r->at + 1, "0123456789,");
    bool closed = n && r->at[n + 1] == '}';
    nn_buffer_putc(r->out, *r->at++);
    if (!closed) return;
    if (*r->at == ',') nn_buffer_putc(r->out, '0');
    nn_buffer_put(r->out, r->at, n + 1);
    r->at += n + 1;
    if (*r->at == '+') r->problem = "a '+' after a repeat in braces";
}

const char *nn_expression_translate(nn_buffer *out, const char *pattern)
{
    reader r = {pattern, out, NULL, 0};
    while (*r.at && !r.problem) {
        if (*r.at == '\\') escape(&r);
        else if (*r.at == '(') group(&r);
        else if (*r.at == '{') repeat(&r);
        else if (*r.at == '[') {
            set s = {0};
            r.at++;
            class_body(&r, &s);
            put_set(out, &s);
            free_set(&s);
        } else nn_buffer_putc(out, *r.at++);
    }
    return r.problem;
}
