/* Two tables: heads with their roles, and roles with their heads. */
#include "cli/common/cli.h"
#include "cli/heads/roles.h"
#include "cli/draw/scale.h"

#include <inttypes.h>
#include <stdio.h>

enum { INDENT = 2, HEAD = 6, GAP = 3, POSITION = 15, CONTENT = 18, SCORE = 5 };
_Static_assert(INDENT + HEAD + POSITION + CONTENT + CONTENT + 3 * SCORE + 2 * GAP <= 80, "the table fits the screen");

/* ---- Heads ------------------------------------------------------------------------------------------------------ */

/* A score, the higher the brighter. */
static void put_score(const term *t, int width, double score)
{
    scale_ink(t, 0.35 + 0.65 * score);
    printf("%*.2f%s", width, score, term_style_on(t, TERM_PLAIN));
}

static void put_role(const term *t, const roles *r, int64_t head, int from, bool position)
{
    int64_t best = mha_roles_best(r->of, head, (mha_role_from)from, position);
    int width = position ? POSITION : CONTENT;
    if (best < 0) {
        term_left(t, from + 1 < r->froms || position ? width + SCORE : 0, TERM_FAINT, "-");
        return;
    }
    term_left(t, width, TERM_BOLD, mha_role_name(best));
    put_score(t, SCORE, roles_score(r, head, from, best)->score);
}

static void put_head(const term *t, const roles *r, int64_t head)
{
    char name[48];
    const mha_role_score *any = roles_score(r, head, 0, 0);
    snprintf(name, sizeof name, "%" PRId64 ".%" PRId64, any->block, any->head);
    printf("%*s", INDENT, "");
    term_left(t, HEAD, TERM_PLAIN, name);
    put_role(t, r, head, 0, true);
    for (int from = 0; from < r->froms; from++) {
        printf("%*s", GAP, "");
        put_role(t, r, head, from, false);
    }
    printf("\n");
}

static void put_heads(const term *t, const roles *r)
{
    printf("%*s", INDENT, "");
    term_left(t, HEAD, TERM_FAINT, "head");
    term_left(t, POSITION + SCORE + GAP, TERM_FAINT, "by position");
    term_left(t, CONTENT + SCORE + GAP, TERM_FAINT, "patches attend to");
    if (r->froms > 1) term_left(t, 0, TERM_FAINT, "class token attends to");
    printf("\n");
    term_rule(t, INDENT, 80 - INDENT);
    for (int64_t n = 0; n < r->info.heads; n++) put_head(t, r, n);
}

/* ---- Roles ------------------------------------------------------------------------------------------------------ */

enum { ROLE = 20, BEST = 19, NUMBER = 8, COUNT = 7 };
_Static_assert(INDENT + ROLE + BEST + 4 * NUMBER + COUNT <= 80, "the table fits the screen");

/* The head with the highest score, from patches or the class token; and how many heads the role is named for. */
static const mha_role_score *find_best(const roles *r, int64_t role, int *from, int64_t *named)
{
    const mha_role_score *best = NULL;
    *named = 0;
    for (int64_t n = 0; n < r->info.heads; n++) {
        bool has = false;
        for (int f = 0; f < r->froms; f++) {
            const mha_role_score *s = roles_score(r, n, f, role);
            has |= s->named;
            if (best && s->score <= best->score) continue;
            best = s;
            *from = f;
        }
        *named += has;
    }
    return best;
}

static void put_line(const term *t, const roles *r, int64_t role)
{
    char name[80];
    int from = 0;
    int64_t named;
    const mha_role_score *s = find_best(r, role, &from, &named);
    snprintf(name, sizeof name, "%" PRId64 ".%" PRId64 " (%s)", s->block, s->head, from ? "class token" : "patches");
    printf("%*s", INDENT, "");
    term_left(t, ROLE, named ? TERM_BOLD : TERM_FAINT, mha_role_name(role));
    term_left(t, BEST, named ? TERM_PLAIN : TERM_FAINT, name);
    put_score(t, NUMBER, s->score);
    printf("%*.2f%*.1f%*.3f", NUMBER, s->lift, NUMBER, s->z, NUMBER, s->p);
    term_number(t, COUNT, 0, TERM_PLAIN, (double)named);
    printf("\n");
}

static void put_roles(const term *t, const roles *r)
{
    static const char *const names[] = {"score", "lift", "z", "p"};
    printf("\n%*s", INDENT, "");
    term_left(t, ROLE, TERM_FAINT, "role");
    term_left(t, BEST, TERM_FAINT, "strongest head");
    for (int n = 0; n < 4; n++) term_right(t, NUMBER, TERM_FAINT, names[n]);
    term_right(t, COUNT, TERM_FAINT, "heads");
    printf("\n");
    term_rule(t, INDENT, 80 - INDENT);
    for (int64_t role = 0; role < r->count; role++) put_line(t, r, role);
}

/* ---- All -------------------------------------------------------------------------------------------------------- */

void roles_table(const term *t, const roles *r)
{
    printf("\n%*s", INDENT, "");
    term_left(t, 0, TERM_PLAIN, "Roles of heads");
    printf(", from %" PRId64 " image%s and %" PRId64 " shuffle%s\n\n", r->info.images, plural(r->info.images),
           r->info.shuffles, plural(r->info.shuffles));
    put_heads(t, r);
    put_roles(t, r);
    printf("\n%*sscore: correlation of attention with the role, without what the head does in\n", INDENT, "");
    printf("%*s  every image (by position: for every query); a role is named from 0.15 on\n", INDENT, "");
    printf("%*slift: attention to the role's patches, relative to shuffled images\n", INDENT, "");
    printf("%*sz: of the score, in standard deviations over shuffled images\n", INDENT, "");
    printf("%*sp: probability that any head and any role of the model reach this z with\n", INDENT, "");
    printf("%*s  shuffled images; a role is named up to %g\n", INDENT, "", r->info.level);
    printf("%*s  (by position, keys are shuffled instead of images)\n", INDENT, "");
    printf("%*sheads: that have the role; the first table shows the best role of each\n", INDENT, "");
}
