/* mha heads --roles: tables and object say what mha_roles_make says, in 80 columns. */
#include "cli/small_vit.h"
#include <mha_model.h>

enum { HEADS = 4 };

static mha_context *ctx;
static mha_roles *truth;

/* A model of two blocks of two heads, and its roles over the test images of a folder. */
static bool prepare(void)
{
    static bool tried, done;
    if (tried) return expect(done, "not prepared");
    tried = true;
    small_vit v;
    mha_model *model = NULL;
    mha_data *data = NULL;
    nn_description config = small_config();
    nn_mnist *set = small_folder("d");
    if (!set || !small_make(&v, &config, "m.safetensors")) return false;
    done = expect(!mha_context_create(&ctx, NULL) && !mha_model_open(ctx, &model, "m.safetensors", NULL) &&
                      !mha_data_open(ctx, &data, "d", NULL) &&
                      !mha_roles_make(ctx, &truth, model, data, MHA_DATA_TEST, NULL),
                  "%s", mha_context_error(ctx));
    mha_model_free(model);
    mha_data_free(data);
    nn_mnist_free(set);
    small_free(&v);
    return done;
}

__attribute__((destructor)) static void clean_up(void)
{
    mha_roles_free(truth);
    mha_context_free(ctx);
}

static const said *heads(const char *settings, const char *args)
{
    char line[600];
    snprintf(line, sizeof line, "heads m.safetensors --data d --roles %s", args);
    const said *it = command(settings, line);
    expect(it->status == 0 && !*it->err, "heads %s: exit %d, '%s'", args, it->status, it->err);
    return it;
}

static mha_role_score score_of(int64_t head, mha_role_from from, int64_t role)
{
    mha_role_score s = {.size = sizeof s};
    expect(!mha_roles_get(ctx, truth, head, from, role, &s), "%s", mha_context_error(ctx));
    return s;
}

/* A cell of the table: the best role and its score, or a dash. */
static void put_cell(char *out, size_t room, int64_t head, mha_role_from from, bool position)
{
    int64_t best = mha_roles_best(truth, head, from, position);
    if (best < 0) snprintf(out, room, "-");
    else snprintf(out, room, "%-*s%5.2f", position ? 15 : 18, mha_role_name(best), score_of(head, from, best).score);
}

TEST(the_tables_have_every_head_and_every_role)
{
    if (!prepare()) return;
    const said *it = heads("LC_ALL=C", "");
    const char *text = strstr(it->out, "\n  Roles of heads, from 70 images and 999 shuffles\n");
    if (!expect(text, "no roles: %.300s", it->out)) return;
    for (int64_t n = 0; n < HEADS; n++) {
        char want[200], position[60], patches[60], first[60];
        put_cell(position, sizeof position, n, MHA_ROLE_FROM_PATCHES, true);
        put_cell(patches, sizeof patches, n, MHA_ROLE_FROM_PATCHES, false);
        put_cell(first, sizeof first, n, MHA_ROLE_FROM_CLASS, false);
        snprintf(want, sizeof want, "\n  %d.%d   %-20s   %-23s   %s\n", (int)n / 2, (int)n % 2, position, patches,
                 first);
        expect(strstr(text, want) != NULL, "no line '%s'", want);
    }
    for (int64_t role = 0; mha_role_key(role); role++) {
        char want[60];
        double best = -2;
        for (int n = 0; n < 2 * HEADS; n++)
            if (n % 2 == 0 || !mha_role_is_position(role))
                best = fmax(best, score_of(n / 2, (mha_role_from)(n % 2), role).score);
        snprintf(want, sizeof want, "\n  %-20s", mha_role_name(role));
        const char *line = strstr(strstr(text, "strongest head"), want);
        if (!expect(line, "no line for %s", mha_role_name(role))) continue;
        double got = strtod(strchr(line, ')') + 1, NULL);
        expect(fabs(got - best) < 0.0051, "%s: %g, not %g", mha_role_name(role), got, best);
    }
    expect(widest_columns(it->out) <= 80, "%d columns wide", widest_columns(it->out));
    expect(!strstr(text, " \n"), "spaces at the end of a line");
    expect(!strstr(heads("LC_ALL=C", "--sample 9")->out, "from 70 images and"), "not 9 images");
    it = heads("LC_ALL=C.UTF-8 COLORTERM=truecolor", "--color always");
    char *plain = strdup(it->out);
    if (plain) expect(widest_columns(strip(plain)) <= 80, "%d columns wide", widest_columns(plain));
    free(plain);
    it = command("", "heads m.safetensors --data d");
    expect(!strstr(it->out, "Roles of heads"), "roles without --roles");
}

static void expect_role(const char *object, const char *key, int64_t role)
{
    const char *got = json_field(object, key);
    expect(strcmp(got, role < 0 ? "null" : mha_role_key(role)) == 0, "%s is %s", key, got);
}

static void expect_scores(const char *list, int64_t head)
{
    static char object[1 << 14];
    static const char *const keys[] = {"score", "lift", "variation", "z", "p", "p_alone"};
    int count = 0;
    for (int n = 0; *json_element(list, n); n++, count++) {
        snprintf(object, sizeof object, "%s", json_element(list, n));
        int64_t role = 0;
        bool from = strcmp(json_field(object, "queries"), "class_token") == 0;
        while (mha_role_key(role) && strcmp(json_field(object, "role"), mha_role_key(role)) != 0) role++;
        mha_role_score s = score_of(head, from ? MHA_ROLE_FROM_CLASS : MHA_ROLE_FROM_PATCHES, role);
        const double want[] = {s.score, s.lift, s.variation, s.z, s.p, s.p_alone};
        for (int k = 0; k < 6; k++) {
            double got = strtod(json_field(object, keys[k]), NULL);
            expect(fabs(got - want[k]) <= 1e-5 * fabs(want[k]) + 1e-9, "%s of %s is %g, not %g", keys[k],
                   mha_role_key(role), got, want[k]);
        }
        expect(strcmp(json_field(object, "named"), s.named ? "true" : "false") == 0, "named: %s",
               json_field(object, "named"));
    }
    expect(count == 28, "%d scores", count);
}

TEST(the_object_has_every_score)
{
    static char text[1 << 16], list[1 << 16], object[1 << 16], scores[1 << 16];
    if (!prepare()) return;
    const said *it = heads("", "--json");
    snprintf(list, sizeof list, "%s", it->out);
    snprintf(text, sizeof text, "%s", json_field(it->out, "roles"));
    expect(strcmp(json_field(text, "images"), "70") == 0 && strcmp(json_field(text, "shuffles"), "999") == 0 &&
               strcmp(json_field(text, "level"), "0.005") == 0,
           "another sample");
    expect(strcmp(heads("", "--json --threads 3")->out, list) == 0, "three threads say something else");
    snprintf(list, sizeof list, "%s", json_field(text, "heads"));
    for (int n = 0; n < HEADS; n++) {
        snprintf(object, sizeof object, "%s", json_element(list, n));
        expect(strtol(json_field(object, "block"), NULL, 10) == n / 2 &&
                   strtol(json_field(object, "head"), NULL, 10) == n % 2,
               "head %d is another", n);
        expect_role(object, "by_position", mha_roles_best(truth, n, MHA_ROLE_FROM_PATCHES, true));
        expect_role(object, "patches", mha_roles_best(truth, n, MHA_ROLE_FROM_PATCHES, false));
        expect_role(object, "class_token", mha_roles_best(truth, n, MHA_ROLE_FROM_CLASS, false));
        int64_t best = mha_roles_best(truth, n, MHA_ROLE_FROM_PATCHES, false);
        const char *words = json_field(object, "words");
        expect(best < 0 || strstr(words, mha_role_name(best)), "words: %s", words);
        snprintf(scores, sizeof scores, "%s", json_field(object, "scores"));
        expect_scores(scores, n);
    }
}

TEST(errors_are_one_line_and_nothing_leaks)
{
    if (!prepare()) return;
    REFUSE("heads m.safetensors --data none --roles", "none: No such file or directory");
    REFUSE("heads m.safetensors --roles=yes", "heads: --roles takes no value");
    REFUSE("heads m.safetensors --data d --roles yes", "heads: unexpected argument 'yes'; see 'mha heads --help'");
    expect(!heads("", "--sample 9 --format svg --out leaks.svg")->status, "leaks");
    const said *it = heads("", "--format svg --out h.svg");
    expect(strncmp(it->out, "wrote the maps of 4 heads to h.svg\n", 35) == 0 && strstr(it->out, "Roles of heads"),
           "with a picture: %.200s", it->out);
}
