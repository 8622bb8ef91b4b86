#include "cli/heads/roles.h"
#include "cli/common/cli.h"
#include "cli/terminal/progress.h"

#include <stdlib.h>

enum { IMAGES = 400 };

static bool take_roles(roles *r, mha_context *ctx)
{
    r->info.size = sizeof r->info;
    if (mha_roles_about(ctx, r->of, &r->info)) return false;
    r->froms = r->info.class_token ? 2 : 1;
    while (mha_role_key(r->count)) r->count++;
    r->scores = calloc((size_t)(r->info.heads * r->froms), (size_t)r->count * sizeof *r->scores);
    if (!r->scores) return !mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the roles");
    for (int64_t n = 0; n < r->info.heads * r->froms * r->count; n++) {
        mha_role_score *s = &r->scores[n];
        mha_role_from from = n / r->count % r->froms ? MHA_ROLE_FROM_CLASS : MHA_ROLE_FROM_PATCHES;
        int64_t role = n % r->count;
        s->size = sizeof *s;
        s->p = 1;
        if (from == MHA_ROLE_FROM_CLASS && mha_role_is_position(role)) continue;
        if (mha_roles_get(ctx, r->of, n / r->count / r->froms, from, role, s)) return false;
    }
    return true;
}

bool roles_make(roles *r, mha_context *ctx, mha_model *model, const mha_data *data, int64_t sample, const char *path)
{
    mha_roles_options options = MHA_ROLES_DEFAULTS;
    options.images = sample && sample < IMAGES ? sample : IMAGES;
    *r = (roles){0};
    progress_begin("measuring the roles of heads");
    bool made = !mha_roles_make(ctx, &r->of, model, data, MHA_DATA_TEST, &options) && take_roles(r, ctx);
    progress_end();
    if (made) return true;
    cli_error("%s: %s", path, cli_reason(ctx));
    roles_free(r);
    return false;
}

void roles_free(roles *r)
{
    mha_roles_free(r->of);
    free(r->scores);
    *r = (roles){0};
}
