/* Messages, and the context of a command. */
#include "cli/common/options.h"
#include "cli/terminal/progress.h"
#include "cli/draw/term.h"
#include "io/printable.h"
#include "io/replace.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *program = "mha";

void cli_called(const char *as)
{
    if (as && as[0] != '/' && strchr(as, '/')) program = as;
}

const char *cli_program(void) { return program; }

/* The part of a message that begins with a command to be copied, or its end. */
static const char *command_in(const char *text)
{
    char begin[200];
    snprintf(begin, sizeof begin, ": %.150s ", cli_program());
    const char *at = strstr(text, begin);
    return at ? at + 2 : text + strlen(text);
}

/* Prints a message on standard error, a terminal, with line breaks at spaces. Further lines are indented as the text behind
 * "mha:" is. A command that the message ends with stays whole, so that it can be copied. */
static void print_wrapped(const char *text)
{
    enum { NARROW = 40 };
    int width = term_error_columns() - 1, column = 0;
    const char *command = command_in(text), *colon = strchr(text, ':');
    int indent = colon && colon - text < 6 ? (int)(colon - text) + 2 : 2;
    if (width < NARROW || term_columns(text) <= width) {
        fputs(text, stderr);
        return;
    }
    while (*text) {
        size_t length = text == command ? strlen(text) : strcspn(text, " ");
        char word[NN_PRINTABLE_WIDEST * 256];
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        int columns = term_columns(word);
        bool breaks = column > indent && column + 1 + columns > width;
        if (breaks) fprintf(stderr, "\n%*s", column = indent, "");
        else if (column) fputc(' ', stderr), column++;
        fprintf(stderr, "%.*s", (int)length, text);
        column += columns;
        text += length + (text[length] == ' ');
    }
}

/* A file name may contain any byte. The formatted text is escaped as a whole, so that no caller can forget a name; only
 * the newlines at the beginning and the end of the format are printed as they are. */
void cli_print(FILE *out, const char *format, ...)
{
    va_list args;
    enum { LINE = 8192 };
    static const char newlines[] = "\n\n\n\n";
    char line[LINE], shown[NN_PRINTABLE_WIDEST * LINE];
    size_t first = strspn(format, "\n"), last = strlen(format), ends = 0;
    while (last > first && format[last - 1] == '\n') last--, ends++;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (length < 0) return;
    assert(first < sizeof newlines && ends < sizeof newlines);
    if (length < LINE) line[length - (int)ends] = 0;
    if (out == stderr) progress_hide();
    nn_printable(shown, sizeof shown, line + first);
    fprintf(out, "%.*s", (int)first, newlines);
    if (out == stderr && isatty(STDERR_FILENO)) print_wrapped(shown);
    else fputs(shown, out);
    fprintf(out, "%.*s", (int)ends, newlines);
}

/* What errors of this program begin with. */
static const char *prefix(void) { return cli_is_tool() ? cli_name() : "mha"; }

enum { MESSAGE = 8000 };

static void print_error(const char *message)
{
    fflush(stdout); /* keep the order of lines if both streams go to the same place */
    cli_print(stderr, "%s: %s\n", prefix(), message);
}

bool cli_error(const char *format, ...)
{
    char message[MESSAGE];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    print_error(message);
    return false;
}

bool cli_refuse(const char *format, ...)
{
    char message[MESSAGE];
    int used = cli_is_tool() ? 0 : snprintf(message, sizeof message, "%s: ", cli_name());
    va_list args;
    va_start(args, format);
    vsnprintf(message + used, sizeof message - (size_t)used, format, args);
    va_end(args);
    print_error(message);
    return false;
}

/* The names of the instruction sets that may be forced, separated by commas. */
static void list_isas(char *out, size_t room)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < mha_isa_count() && n < room; i++)
        if (mha_isa_get(i).available)
            n += (size_t)snprintf(out + n, room - n, "%s%s", n ? ", " : "", mha_isa_get(i).name);
}

mha_context *cli_context(void) { return cli_context_of(0); }

mha_context *cli_context_of(int threads)
{
    char why[200] = "", isas[100];
    mha_context *ctx = NULL;
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.threads = threads;
    options.error = why;
    options.error_size = sizeof why;
    mha_status status = mha_context_create(&ctx, &options);
    list_isas(isas, sizeof isas);
    if (status == MHA_NO_ISA) /* only MHA_ISA can have named one */
        cli_error("MHA_ISA: %s; available here: %s", strncmp(why, "isa: ", 5) == 0 ? why + 5 : why, isas);
    else if (status) cli_error("%s", why);
    return ctx;
}

double cli_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool cli_can_write(const char *path)
{
    char error[600];
    nn_replacement to;
    bool good = !nn_replacement_begin(&to, path, error, sizeof error);
    nn_replacement_fail(&to, MHA_BAD_ARGUMENT, "cancelled");
    nn_replacement_end(&to);
    if (!good) cli_error("%s", error);
    return good;
}

int cli_finish(int status)
{
    progress_end();
    bool lost = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) == 0 && !lost) return status;
    fprintf(stderr, "%s: cannot write to standard output: %s\n", prefix(), errno ? strerror(errno) : "a write failed");
    return status == CLI_OK ? CLI_FAILED : status;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n >= m && strcmp(name + n - m, ending) == 0;
}

/* Whether it is a file that a model is made of, in its folder, where pages and pictures may lie as well. */
static bool is_in_folder(const struct stat *to, const char *path)
{
    static const char *const endings[] = {".safetensors", ".json", ".bin", ".model", ".spm", ".txt"};
    struct stat from;
    bool in = false;
    DIR *folder = opendir(path);
    if (!folder) return false;
    for (struct dirent *entry; !in && (entry = readdir(folder));)
        for (size_t n = 0; !in && n < sizeof endings / sizeof *endings; n++)
            in = ends_with(entry->d_name, endings[n]) && !fstatat(dirfd(folder), entry->d_name, &from, 0) &&
                 is_same(to, &from);
    closedir(folder);
    return in;
}

bool cli_is_output(const char *output, const char *path, const char *what)
{
    struct stat to, from;
    if (stat(output, &to) || stat(path, &from)) return false; /* nothing to overwrite */
    bool same = is_same(&to, &from), in = !same && S_ISDIR(from.st_mode) && is_in_folder(&to, path);
    if (same) cli_refuse("the output %s is also the %s; choose another file", output, what);
    if (in) cli_refuse("the output %s is a file of the %s's folder; choose another file", output, what);
    return same || in;
}

/* ---- Suggestions ------------------------------------------------------------------------------------------------- */

/* A suggestion is the candidate at the smallest edit distance: inserting, removing or changing a letter, or swapping
 * two neighbours, each count as one. The limit is a third of the word's length, so `inof` finds `info` and `x` finds
 * nothing. The opposite of a word, such as --min-tokens of --max-tokens, is never suggested, however near it is. */
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

bool cli_wants_help(const char *word) { return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0; }
