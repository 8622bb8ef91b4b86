#include "cli/heads/roles.h"
#include "io/json.h"

#include <inttypes.h>

static const char *const queries[] = {"patches", "class_token"};

static void put_key(nn_buffer *out, const char *name, int64_t role)
{
    char quoted[60];
    nn_buffer_printf(out, ", \"%s\": %s", name,
                     role < 0 ? "null" : nn_json_quote(quoted, sizeof quoted, mha_role_key(role)));
}

/* "local range (0.25); patches: ink (0.72)". */
static void put_words(nn_buffer *out, const roles *r, int64_t head)
{
    static const char *const who[] = {"", "patches: ", "class token: "};
    const char *before = "";
    nn_buffer_puts(out, ", \"words\": \"");
    for (int n = 0; n < 3; n++) { /* without a class token, it has no role */
        int from = n == 2;
        int64_t best = mha_roles_best(r->of, head, (mha_role_from)from, n == 0);
        if (best < 0) continue;
        nn_buffer_printf(out, "%s%s%s (%.2f)", before, who[n], mha_role_name(best),
                         roles_score(r, head, from, best)->score);
        before = "; ";
    }
    nn_buffer_puts(out, "\"");
}

static void put_score(nn_buffer *out, const mha_role_score *s, int from, int64_t role)
{
    nn_buffer_printf(out, "{\"role\": \"%s\", \"queries\": \"%s\", \"score\": %.6g, \"lift\": %.6g", mha_role_key(role),
                     queries[from], s->score, s->lift);
    nn_buffer_printf(out, ", \"variation\": %.6g, \"z\": %.6g, \"p\": %.6g, \"p_alone\": %.6g, \"named\": %s}",
                     s->variation, s->z, s->p, s->p_alone, s->named ? "true" : "false");
}

static void put_head(nn_buffer *out, const roles *r, int64_t head)
{
    const mha_role_score *any = roles_score(r, head, 0, 0);
    const char *before = "";
    nn_buffer_printf(out, "\n  {\"block\": %" PRId64 ", \"head\": %" PRId64, any->block, any->head);
    put_words(out, r, head);
    put_key(out, "by_position", mha_roles_best(r->of, head, MHA_ROLE_FROM_PATCHES, true));
    put_key(out, "patches", mha_roles_best(r->of, head, MHA_ROLE_FROM_PATCHES, false));
    put_key(out, "class_token", mha_roles_best(r->of, head, MHA_ROLE_FROM_CLASS, false));
    nn_buffer_puts(out, ", \"scores\": [");
    for (int from = 0; from < r->froms; from++)
        for (int64_t role = 0; role < r->count; role++) {
            if (from && mha_role_is_position(role)) continue;
            nn_buffer_printf(out, "%s\n    ", before);
            put_score(out, roles_score(r, head, from, role), from, role);
            before = ",";
        }
    nn_buffer_puts(out, "]}");
}

void roles_json(nn_buffer *out, const roles *r)
{
    nn_buffer_printf(out, "{\"images\": %" PRId64 ", \"shuffles\": %" PRId64 ", \"level\": %g,\n \"heads\": [",
                     r->info.images, r->info.shuffles, r->info.level);
    for (int64_t n = 0; n < r->info.heads; n++) {
        if (n) nn_buffer_puts(out, ",");
        put_head(out, r, n);
    }
    nn_buffer_puts(out, "]}");
}
