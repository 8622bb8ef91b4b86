/* Stop strings in text that comes in pieces, and whole characters. */
#include "generate/stop.h"
#include "support/harness.h"

/* Feeds `text` in pieces of `piece` bytes and notes what could be shown after each; checks that nothing shown is ever
 * taken back. Returns where the text ended, or -1. */
static int64_t run(const char *const *strings, int64_t count, const char *text, size_t piece)
{
    nn_stop s;
    nn_stop_text t;
    size_t size = strlen(text), shown = 0;
    expect(nn_stop_create(&s, strings, count) && nn_stop_text_create(&t, &s), "memory");
    for (size_t at = 0; at < size; at += piece) {
        size_t here = size - at < piece ? size - at : piece;
        nn_stop_feed(&t, &s, text + at, here);
        size_t now = nn_stop_shown(&t, &s, text, at + here == size);
        expect(now >= shown, "%zu bytes of \"%s\" were shown, then %zu", shown, text, now);
        shown = now;
    }
    int64_t ends = t.found ? (int64_t)t.ends : -1;
    expect(shown == (t.found ? t.ends : size), "%zu bytes of \"%s\" are shown", shown, text);
    nn_stop_text_free(&t);
    nn_stop_free(&s);
    return ends;
}

TEST(a_stop_string_ends_the_text_wherever_it_is_cut)
{
    static const struct {
        const char *string[3], *text;
        int64_t ends;
    } cases[] = {
        {{"stop"}, "do not stop here", 7},
        {{"\n\n"}, "one\ntwo\n\nthree", 7},
        {{"aab"}, "aaaab", 2},                  /* a prefix of itself */
        {{"abcabd"}, "abcabcabd", 3},           /* goes on from a border */
        {{"end", "the end"}, "at the end.", 3}, /* the longer one began first */
        {{"xyz", "y"}, "wxyz", 2},              /* the shorter one ends first */
        {{"never"}, "neve neve", -1},
        {{"stop", "top", "p"}, "stop", 0},
        {{"\xC3\xA9"}, "caf\xC3\xA9!", 3},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (size_t piece = 1; piece <= strlen(cases[n].text); piece++) {
            int64_t count = 0;
            while (count < 3 && cases[n].string[count]) count++;
            int64_t ends = run(cases[n].string, count, cases[n].text, piece);
            expect(ends == cases[n].ends, "\"%s\" in pieces of %zu ends at %lld, not %lld", cases[n].text, piece,
                   (long long)ends, (long long)cases[n].ends);
        }
    expect(run(NULL, 0, "no stop strings", 4) == -1, "no strings");
}

TEST(what_may_become_a_stop_string_is_held_back)
{
    const char *const strings[] = {"###", "\nUser:"};
    nn_stop s;
    nn_stop_text t;
    expect(nn_stop_create(&s, strings, 2) && nn_stop_text_create(&t, &s), "memory");
    const char *text = "a##b\nUse";
    const size_t shown[] = {1, 1, 1, 4, 4, 4, 4, 4};
    for (size_t n = 0; n < 8; n++) {
        expect(!nn_stop_feed(&t, &s, text + n, 1), "no stop string yet");
        expect(nn_stop_shown(&t, &s, text, false) == shown[n], "after %zu bytes %zu are shown, not %zu", n + 1,
               nn_stop_shown(&t, &s, text, false), shown[n]);
    }
    expect(nn_stop_shown(&t, &s, text, true) == 8, "at the end all of it is shown");
    nn_stop_text_free(&t);
    nn_stop_free(&s);
}

TEST(only_whole_characters_are_shown)
{
    static const struct {
        const char *bytes;
        size_t whole;
    } cases[] = {
        {"", 0},
        {"abc", 3},
        {"a\xC3", 1},
        {"a\xC3\xA9", 3},
        {"\xE2\x82", 0},
        {"\xE2\x82\xAC", 3},
        {"\xF0\x9F\x98", 0},
        {"x\xF0\x9F", 1},
        {"\xF0\x9F\x98\x80", 4},
        {"\xFF", 1},         /* never part of a character */
        {"\xC0", 1},         /* neither */
        {"\xE0\x80", 2},     /* overlong: no byte can complete it */
        {"\xED\xA0", 2},     /* a surrogate */
        {"\xF4\x90", 2},     /* past the last character */
        {"\x80\x80\x80", 3}, /* continues nothing */
        {"\xC3\xA9\xA9", 3},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        expect(nn_utf8_whole(cases[n].bytes, strlen(cases[n].bytes)) == cases[n].whole, "case %zu: %zu", n,
               nn_utf8_whole(cases[n].bytes, strlen(cases[n].bytes)));
}
