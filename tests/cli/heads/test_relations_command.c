/* mha heads --relations: words, multiword tokens, empty nodes and coreference of CoNLL-U; every damaged file is one line. */
#include "cli/generate/letters.h"

static const char *model(void)
{
    static char path[256];
    if (!*path) snprintf(path, sizeof path, "%s", letters_make("letters", NULL));
    return path;
}

static const said *relations(const char *text, const char *more)
{
    char line[1500];
    letters_file(command_folder, "r.conllu", text);
    snprintf(line, sizeof line, "heads %s --relations %s %s", model(), in_folder("r.conllu"), more);
    return command("LC_ALL=C", line);
}

/* A line of a word. */
#define WORD(id, form, head, relation, misc) id "\t" form "\t_\t_\t_\t_\t" head "\t" relation "\t_\t" misc "\n"

/* "dont go a dog": do and nt are one stretch of text; an empty node; two mentions of one dog. */
static const char sentence[] = "# text = dont go a dog\n" WORD("1-2", "dont", "_", "_", "_")
    WORD("1", "do", "3", "aux", "_") WORD("2", "nt", "1", "advmod", "_") WORD("3", "go", "0", "root", "_")
        WORD("3.1", "x", "_", "_", "_") WORD("4", "a", "5", "det", "Entity=(e1-animal-1)")
            WORD("5", "dog", "3", "obj", "SpaceAfter=No|Coref=e1") "\n";

/* Relation n of a JSON answer, as text. */
static const char *relation_of(const said *it, int n)
{
    static char all[1 << 16], one[1 << 14];
    snprintf(all, sizeof all, "%s", json_field(it->out, "relations"));
    snprintf(one, sizeof one, "%s", json_element(all, n));
    return one;
}

TEST(words_and_links_are_those_of_the_file)
{
    static const char *const names[] = {"aux", "advmod", "det", "obj", "coref"};
    static const int forth[] = {0, 0, 0, 1, 1}, back[] = {1, 0, 1, 0, 0}; /* what a causal model sees */
    const said *it = relations(sentence, "--json");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    expect(!strcmp(json_field(it->out, "sentences"), "1") && !strcmp(json_field(it->out, "words"), "4") &&
               !strcmp(json_field(it->out, "links"), "4"),
           "%.300s", it->out);
    for (int n = 0; n < 5; n++) {
        const char *one = relation_of(it, 2 * n);
        expect(!strcmp(json_field(one, "relation"), names[n]) && !strcmp(json_field(one, "direction"), "forth"), "%s",
               one);
        expect(strtol(json_field(one, "links"), NULL, 10) == forth[n], "%s: %s", names[n], one);
        one = relation_of(it, 2 * n + 1);
        expect(strtol(json_field(one, "links"), NULL, 10) == back[n] && !strcmp(json_field(one, "direction"), "back"),
               "%s", one);
    }
    const char *obj = relation_of(it, 6);
    expect(!strcmp(json_field(obj, "offset"), "-2") && !strcmp(json_field(obj, "offset_hits"), "1"), "%s", obj);
    expect(strlen(json_field(obj, "heads")) == strlen("[0, 0, 0, 0]"), "%s", obj);
}

TEST(the_table_has_frequent_relations)
{
    static char text[1 << 14];
    text[0] = 0;
    for (int n = 0; n < 12; n++) strncat(text, sentence, sizeof text - strlen(text) - 1);
    const said *it = relations(text, "");
    expect(it->status == 0 && !*it->err && strstr(it->out, ": 12 sentences, 48 words, 48 links;"), "%s%s", it->out,
           it->err);
    expect(strstr(it->out, "\n  obj             to its head          12 ") &&
               strstr(it->out, "\n  coref           to the earlier       12 ") && !strstr(it->out, "\n  advmod"),
           "%s", it->out);
    expect(widest_line(it->out) <= 80, "%zu columns", widest_line(it->out));
    it = relations(text, "--sample 3");
    expect(strstr(it->out, ": 3 sentences, 12 words"), "%s", it->out);
}

static void expect_error(const char *text, const char *more, const char *why)
{
    const said *it = relations(text, more);
    expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, why), "exit %d, '%s', not '%s'",
           it->status, it->err, why);
}

TEST(damaged_files_are_one_line)
{
    expect_error("", "", "r.conllu: has no sentence; is it CoNLL-U?");
    expect_error("# only a comment\n\n", "", "r.conllu: has no sentence; is it CoNLL-U?");
    expect_error("the cat sat\n", "", "line 1: has 1 column, not 10");
    expect_error(WORD("1", "a", "0", "root", "_\t_"), "", "more than 10 columns");
    expect_error(WORD("2", "a", "0", "root", "_"), "", "ID is '2', not 1");
    expect_error(WORD("x", "a", "0", "root", "_"), "", "ID is 'x'");
    expect_error(WORD("1", "a", "1", "root", "_"), "", "HEAD is '1', which is no other word");
    expect_error(WORD("1", "a", "y", "root", "_"), "", "HEAD is 'y'");
    expect_error(WORD("1", "a", "7", "dep", "_") "\n", "", "HEAD of word 1 is 7, but the sentence has 1 words");
    expect_error(WORD("1", "", "0", "root", "_"), "", "FORM is empty");
    expect_error(WORD("1-3", "ab", "_", "_", "_") WORD("1", "a", "0", "root", "_") "\n", "",
                 "inside a multiword token");
    expect_error(WORD("2-3", "ab", "_", "_", "_"), "", "does not begin with word 1");
    expect_error(WORD("1", "a", "0", "root", "_"), "", "r.conllu: has no dependency and no coreference");
    expect_error(WORD("1", "a", "0", "root", "_") WORD("2", "\xff", "1", "dep", "_"), "", "UTF-8");
}

/* As many different names as a file may have, and more: nothing takes quadratic time. */
TEST(names_of_relations_without_end)
{
    enum { MOST = 16384, WORDS_OF_ONE = 4000, LINE = 40 };
    char *text = malloc((MOST + 100) * LINE);
    size_t n = 0;
    if (!text) exit(1);
    for (int i = 0, id = 1; i <= MOST; i += id++ > 1) {
        if (id > WORDS_OF_ONE) id = 1;
        n += (size_t)snprintf(text + n, LINE, "%s%d\ta\t_\t_\t_\t_\t%d\tr%d\t_\t_\n", id == 1 && i ? "\n" : "", id,
                              id > 1, i);
    }
    expect_error(text, "", "has more than 16384 different relations; is DEPREL its eighth column?");
    free(text);
}

TEST(wrong_use_is_one_line)
{
    char more[300];
    snprintf(more, sizeof more, "--text %s", in_folder("r.conllu"));
    expect_error(sentence, more, "exclude each other");
    expect_error(sentence, "--ablate", "--ablate and --relations exclude each other");
    expect_error(sentence, "--format png -o x.png", "--format needs --text");
    expect_error(sentence, "--sort entropy", "--sort needs --text");
    expect_error(sentence, "--data x", "--data is for models of images");
    expect_error(sentence, "--tokenizer /nowhere", "/nowhere");
    char line[600];
    snprintf(line, sizeof line, "heads %s --relations /nowhere", model());
    const said *it = command("", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "/nowhere"), "%s", it->err);
}
