/* Edits that look at one character at a time, or at a pattern. */
#include "text/steps.h"

#include <string.h>

void nn_edit_insert(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    const char *text = f->text.bytes + start;
    bool there = s->unless && end - start >= s->content_size && memcmp(text, s->content, s->content_size) == 0;
    if (!there && (!s->first || f->text.from[start] == 0)) {
        size_t length;
        nn_utf8_get(text, &length);
        nn_flow_put(f, s->content, s->content_size, start, start + length - 1);
    }
    nn_flow_copy(f, start, end);
}

typedef struct replacing {
    const nn_step *step;
    nn_flow *flow;
    size_t start;
} replacing;

static void replace_each(void *user, size_t start, size_t end, bool match)
{
    replacing *r = user;
    start += r->start;
    end += r->start;
    size_t last = end > start ? end - 1 : end > r->start ? end - 1 : end;
    if (match) nn_flow_put(r->flow, r->step->content, r->step->content_size, last, last);
    else nn_flow_copy(r->flow, start, end);
}

void nn_edit_replace(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    replacing r = {s, f, start};
    if (nn_pattern_all(&s->pattern, &f->matcher, f->text.bytes + start, end - start, replace_each, &r))
        nn_pattern_fail(&s->pattern, f);
}

/* The length of the last character of a text that ends at `end`. */
static size_t last_length(const char *bytes, size_t end)
{
    size_t n = 1;
    while (n < 4 && ((unsigned char)bytes[end - n] & 0xc0) == 0x80) n++;
    return n;
}

void nn_edit_strip(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    size_t n;
    while (s->left && start < end && nn_is_space(nn_utf8_get(f->text.bytes + start, &n))) start += n;
    while (s->right && start < end) {
        size_t last = last_length(f->text.bytes, end);
        if (!nn_is_space(nn_utf8_get(f->text.bytes + end - last, &n))) break;
        end -= last;
    }
    nn_flow_copy(f, start, end);
}

void nn_edit_drop(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    size_t kept = start, n;
    for (size_t at = start; at < end; at += n) {
        if (!s->is(nn_utf8_get(f->text.bytes + at, &n))) continue;
        nn_flow_copy(f, kept, at);
        kept = at + n;
    }
    nn_flow_copy(f, kept, end);
}

void nn_edit_clean(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    (void)s;
    for (size_t at = start, n; at < end; at += n) {
        int32_t c = nn_utf8_get(f->text.bytes + at, &n);
        if (c == 0 || c == 0xfffd || nn_is_control(c)) continue;
        if (nn_is_space(c)) nn_flow_put(f, " ", 1, at, at + n - 1);
        else nn_flow_copy(f, at, at + n);
    }
}

void nn_edit_ideograph(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    size_t kept = start, n;
    (void)s;
    for (size_t at = start; at < end; at += n) {
        if (!nn_is_ideograph(nn_utf8_get(f->text.bytes + at, &n))) continue;
        nn_flow_copy(f, kept, at);
        nn_flow_put(f, " ", 1, at, at + n - 1);
        nn_flow_copy(f, at, at + n);
        nn_flow_put(f, " ", 1, at, at + n - 1);
        kept = at + n;
    }
    nn_flow_copy(f, kept, end);
}

void nn_edit_lower(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    int32_t lower[2];
    (void)s;
    for (size_t at = start, n; at < end; at += n) {
        int32_t c = nn_utf8_get(f->text.bytes + at, &n);
        int count = nn_lower(c, lower);
        if (count == 1 && lower[0] == c) nn_flow_copy(f, at, at + n);
        else
            for (int i = 0; i < count; i++) nn_flow_put_code(f, lower[i], at, at + n - 1);
    }
}

/* The code point that stands for a byte in byte-level BPE: of printable bytes of Latin-1 their own, of the others, in order,
 * those from U+0100 on. */
static int32_t byte_code(unsigned char b)
{
    if (b <= ' ') return 0x100 + b;
    if (b < 0x7f) return b;
    if (b <= 0xa0) return 0x121 + (b - 0x7f);
    return b == 0xad ? 0x143 : b;
}

void nn_edit_bytes(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    (void)s;
    for (size_t at = start, plain; at < end; at++) {
        for (plain = at; plain < end && f->text.bytes[plain] > ' ' && f->text.bytes[plain] < 0x7f; plain++) {}
        nn_flow_copy(f, at, plain);
        at = plain;
        if (at < end) nn_flow_put_code(f, byte_code((unsigned char)f->text.bytes[at]), at, at);
    }
}

/* What SentencePiece's rules for translation do: control characters dropped, other white space to ' '. */
void nn_edit_nmt(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    (void)s;
    for (size_t at = start, n; at < end; at += n) {
        int32_t c = nn_utf8_get(f->text.bytes + at, &n);
        if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f) continue;
        bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
        if (space) nn_flow_put(f, " ", 1, at, at + n - 1);
        else nn_flow_copy(f, at, at + n);
    }
}

int nn_code_byte(int32_t c)
{
    if (c >= 0x100 && c <= 0x120) return c - 0x100;
    if (c >= 0x121 && c <= 0x142) return c - 0x121 + 0x7f;
    if (c == 0x143) return 0xad;
    return (c > ' ' && c < 0x7f) || (c > 0xa0 && c < 0x100 && c != 0xad) ? c : -1;
}
