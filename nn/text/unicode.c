/* unicode.h over utf8proc. */
#include "text/unicode.h"
#include "io/printable.h"

#include <string.h>

#ifdef MHA_HAS_UTF8PROC
#include <utf8proc.h>
#endif

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

int32_t nn_utf8_get(const char *p, size_t *length)
{
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) return *length = 1, u[0];
    if (u[0] < 0xe0) return *length = 2, (u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    if (u[0] < 0xf0) return *length = 3, (u[0] & 0x0f) << 12 | (u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    return *length = 4, (u[0] & 0x07) << 18 | (u[1] & 0x3f) << 12 | (u[2] & 0x3f) << 6 | (u[3] & 0x3f);
}

size_t nn_utf8_put(char out[4], int32_t code)
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[n] | code);
    return n;
}

size_t nn_utf8_valid(const char *bytes, size_t size)
{
    const unsigned char *p = (const unsigned char *)bytes;
    size_t at = 0;
    while (at < size) {
        if (p[at] < 0x80) {
            at++;
            continue;
        }
        int length = nn_printable_utf8(p + at, size - at);
        if (!length) return at;
        at += (size_t)length;
    }
    return size;
}

/* The bytes that may follow the first byte of a character; later ones are always 0x80 to 0xbf. */
static void second_byte(unsigned char first, unsigned char *least, unsigned char *most)
{
    *least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
}

/* How many bytes at p agree with the beginning of a character, and how many it needs; 0 for a byte that begins none. */
static size_t agreeing(const unsigned char *p, size_t left, size_t *need)
{
    *need = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
    if (!*need) return 0;
    unsigned char least, most;
    second_byte(p[0], &least, &most);
    size_t n = 1;
    while (n < *need && n < left && p[n] >= least && p[n] <= most) {
        n++;
        least = 0x80, most = 0xbf;
    }
    return n;
}

size_t nn_utf8_invalid(const char *p, size_t left)
{
    size_t need, n = agreeing((const unsigned char *)p, left, &need);
    return n ? n : 1;
}

/* ---- Without utf8proc ---------------------------------------------------------------------------------------------- */

bool nn_is_space(int32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool nn_is_ideograph(int32_t c)
{
    static const int32_t ranges[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
                                        {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    for (size_t i = 0; c >= 0x3400 && i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

#ifndef MHA_HAS_UTF8PROC

bool nn_unicode_available(void) { return false; }
const char *nn_unicode_version(void) { return ""; }
bool nn_is_number(int32_t c) { return c >= '0' && c <= '9'; }
bool nn_is_punctuation(int32_t c) { return c > ' ' && c < 0x7f && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", c); }
bool nn_is_mark(int32_t c) { return c < 0; }
bool nn_is_nonspacing(int32_t c) { return c < 0; }
bool nn_is_control(int32_t c) { return c < ' ' && c != '\t' && c != '\n' && c != '\r'; }
bool nn_is_word(int32_t c) { return c > 0x7f || c == '_' || (!nn_is_punctuation(c) && c > ' ' && c < 0x7f); }
int nn_lower(int32_t c, int32_t out[2]) { return out[0] = c, 1; }
int nn_decompose(int32_t c, bool compatible, int32_t out[NN_DECOMPOSED]) { return (void)compatible, out[0] = c, 1; }
int nn_combining_class(int32_t c) { return c < 0; }
bool nn_joins_previous(int32_t c) { return c < 0; }
size_t nn_compose(int32_t *codes, size_t count) { return (void)codes, count; }
bool nn_grapheme_break(int32_t a, int32_t b, int32_t *state) { return (void)a, (void)b, (void)state, true; }

#else

/* ---- With utf8proc ------------------------------------------------------------------------------------------------- */

bool nn_unicode_available(void) { return true; }
const char *nn_unicode_version(void) { return utf8proc_unicode_version(); }

static bool category_in(int32_t c, unsigned set) { return set >> utf8proc_category(c) & 1; }

#define CATEGORY(name) (1u << UTF8PROC_CATEGORY_##name)
enum {
    LETTERS = CATEGORY(LU) | CATEGORY(LL) | CATEGORY(LT) | CATEGORY(LM) | CATEGORY(LO),
    MARKS = CATEGORY(MN) | CATEGORY(MC) | CATEGORY(ME),
    NUMBERS = CATEGORY(ND) | CATEGORY(NL) | CATEGORY(NO),
    PUNCTUATION =
        CATEGORY(PC) | CATEGORY(PD) | CATEGORY(PS) | CATEGORY(PE) | CATEGORY(PI) | CATEGORY(PF) | CATEGORY(PO),
    CONTROLS = CATEGORY(CC) | CATEGORY(CF) | CATEGORY(CO)
};

bool nn_is_number(int32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : category_in(c, NUMBERS); }

bool nn_is_punctuation(int32_t c)
{
    if (c < 0x80) return c > ' ' && c < 0x7f && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", c);
    return category_in(c, PUNCTUATION);
}

bool nn_is_mark(int32_t c) { return c >= 0x300 && category_in(c, MARKS); }
bool nn_is_nonspacing(int32_t c) { return c >= 0x300 && category_in(c, CATEGORY(MN)); }

bool nn_is_control(int32_t c)
{
    if (c < 0x80) return (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
    return category_in(c, CONTROLS);
}

bool nn_is_word(int32_t c)
{
    if (c < 0x80) return c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (category_in(c, LETTERS | MARKS | CATEGORY(ND) | CATEGORY(NL) | CATEGORY(PC))) return true;
    /* Joiners, and the symbols that are alphabetic: circled and squared letters. */
    return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

int nn_lower(int32_t c, int32_t out[2])
{
    if (c == 0x130) return out[0] = 'i', out[1] = 0x307, 2; /* the only one that becomes two, in every locale */
    out[0] = c < 0x80 ? c + (c >= 'A' && c <= 'Z' ? 32 : 0) : utf8proc_tolower(c);
    return 1;
}

int nn_decompose(int32_t c, bool compatible, int32_t out[NN_DECOMPOSED])
{
    int last = 0;
    if (c < 0x80) return out[0] = c, 1;
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (compatible) options |= UTF8PROC_COMPAT;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, out, NN_DECOMPOSED, options, &last);
    return n > 0 && n <= NN_DECOMPOSED ? (int)n : (out[0] = c, 1);
}

int nn_combining_class(int32_t c) { return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class; }

bool nn_joins_previous(int32_t c) { return nn_is_mark(c) || (c >= 0x1160 && c < 0x1200); }

size_t nn_compose(int32_t *codes, size_t count)
{
    utf8proc_ssize_t n = utf8proc_normalize_utf32(codes, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    return n < 0 ? count : (size_t)n;
}

bool nn_grapheme_break(int32_t before, int32_t after, int32_t *state)
{
    return utf8proc_grapheme_break_stateful(before, after, state);
}

#endif
