/* Suggestions for misspelt words.
 *
 * A suggestion is the candidate at the smallest edit distance: inserting, removing or changing a letter, or swapping
 * two neighbours, each count as one. The limit is a third of the word's length, so `inof` finds `info` and `x` finds
 * nothing. The opposite of a word, such as --min-tokens of --max-tokens, is never suggested, however near it is. */
#include "cli/common/cli.h"

#include <string.h>

enum { WORD_MAX = 32 }; /* longer than any option or command; longer words get no suggestion */

static int smaller(int a, int b) { return a < b ? a : b; }

static int distance(const char *a, const char *b)
{
    int d[WORD_MAX + 1][WORD_MAX + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    for (int i = 0; i <= n; i++) d[i][0] = i;
    for (int j = 0; j <= m; j++) d[0][j] = j;
    for (int i = 1; i <= n; i++) {
        for (int j = 1; j <= m; j++) {
            d[i][j] = smaller(d[i - 1][j], d[i][j - 1]) + 1;
            d[i][j] = smaller(d[i][j], d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = smaller(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[n][m];
}

/* ---- Opposites --------------------------------------------------------------------------------------------------- */

static const char *const negations[] = {"no-", "not-", "non-", "without-", "no", "un", NULL};
static const char *const opposites[][2] = {{"min", "max"},         {"least", "most"},    {"first", "last"},
                                           {"with", "without"},    {"encode", "decode"}, {"enable", "disable"},
                                           {"include", "exclude"}, {"greedy", "sample"}, {"before", "after"}};

/* Whether a word is nearer to the candidate without a negation at its beginning. */
static bool negates(const char *word, const char *candidate)
{
    for (int n = 0; negations[n]; n++) {
        size_t length = strlen(negations[n]);
        if (strncmp(word, negations[n], length) == 0 && distance(word + length, candidate) < distance(word, candidate))
            return true;
    }
    return false;
}

static bool is_part(const char *part, size_t length, const char *of)
{
    return strlen(of) == length && strncmp(part, of, length) == 0;
}

/* Whether parts between dashes, at the same place of both words, are opposites. */
static bool has_opposite_parts(const char *a, const char *b)
{
    while (*a && *b) {
        size_t n = strcspn(a, "-"), m = strcspn(b, "-");
        for (size_t i = 0; i < sizeof opposites / sizeof *opposites; i++)
            for (int side = 0; side < 2; side++)
                if (is_part(a, n, opposites[i][side]) && is_part(b, m, opposites[i][!side])) return true;
        a += n + (a[n] != 0);
        b += m + (b[m] != 0);
    }
    return false;
}

static bool are_opposites(const char *a, const char *b)
{
    a += strspn(a, "-");
    b += strspn(b, "-");
    return negates(a, b) || negates(b, a) || has_opposite_parts(a, b);
}

/* ---- The nearest word -------------------------------------------------------------------------------------------- */

const char *cli_closest(const char *word, const char *const *candidates)
{
    const char *best = NULL;
    size_t length = strlen(word);
    int nearest = (int)(length + 2) / 3 + 1; /* the smallest distance that is too far */
    if (length > WORD_MAX) return NULL;
    for (; *candidates; candidates++) {
        int far = strlen(*candidates) > WORD_MAX ? WORD_MAX : distance(word, *candidates);
        if (far >= nearest || are_opposites(word, *candidates)) continue;
        nearest = far;
        best = *candidates;
    }
    return best;
}

int cli_unknown_option(const char *command, const char *option, const char *const *options)
{
    bool letter = option[1] && !option[2]; /* any other letter would be near */
    const char *near = letter ? NULL : cli_closest(option, options);
    if (near) cli_error("%s: unknown option '%s'; did you mean '%s'?", command, option, near);
    else cli_error("%s: unknown option '%s'; 'mha %s --help' lists them", command, option, command);
    return CLI_USAGE;
}

int cli_unexpected(const char *command, const char *word)
{
    cli_error("%s: unexpected argument '%s'; see 'mha %s --help'", command, word, command);
    return CLI_USAGE;
}
