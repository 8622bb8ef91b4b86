/* The public roles of heads, over inspect/roles.h. */
#include "inspect/roles.h"
#include "public/check.h"
#include "public/data.h"
#include "public/model.h"
#include <stdlib.h>

struct mha_roles {
    nn_roles r;
};

static const nn_role *role_of(int64_t n) { return n >= 0 && n < NN_ROLES ? &nn_roles_table[n] : NULL; }

const char *mha_role_key(int64_t n) { return role_of(n) ? role_of(n)->key : NULL; }
const char *mha_role_name(int64_t n) { return role_of(n) ? role_of(n)->name : NULL; }
const char *mha_role_meaning(int64_t n) { return role_of(n) ? role_of(n)->about : NULL; }
bool mha_role_is_position(int64_t n) { return role_of(n) && role_of(n)->between; }

void mha_roles_defaults(mha_roles_options *options, size_t size)
{
    mha_roles_options all = MHA_ROLES_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

static mha_status read_options(mha_context *ctx, nn_roles_options *own, const mha_roles_options *given)
{
    mha_roles_options o = MHA_ROLES_DEFAULTS;
    mha_status status = nn_public_options(ctx, &o, sizeof o, given, "MHA_ROLES_DEFAULTS");
    if (status) return status;
    if (o.images < 0) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options: the number of images is negative");
    if (o.shuffles < 1 || o.shuffles > 1000000)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options: shuffles must be from 1 to 1000000");
    if (!(o.level >= 0 && o.level <= 1))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options: level must be from 0 to 1");
    *own = (nn_roles_options){o.images, o.shuffles, o.level, o.seed};
    return MHA_OK;
}

mha_status mha_roles_make(mha_context *ctx, mha_roles **roles, mha_model *model, const mha_data *data,
                          mha_data_part part, const mha_roles_options *options)
{
    char error[240] = "";
    const nn_mnist_part *from;
    nn_roles_options own;
    mha_status status;
    if (!ctx || !roles) return MHA_BAD_ARGUMENT;
    *roles = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_cpu(ctx)) || (status = nn_public_read(ctx, &from, data, part, model)) ||
        (status = read_options(ctx, &own, options)))
        return status;
    mha_roles *made = calloc(1, sizeof *made);
    if (!made) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for roles");
    nn_pixels pixels = nn_pixels_of(data->set, from, &model->d, NULL);
    if (!nn_roles_make(&made->r, ctx, &model->d, model->parameters, &pixels, &own, error, sizeof error)) {
        free(made);
        return nn_public_reason(ctx, error);
    }
    *roles = made;
    return MHA_OK;
}

void mha_roles_free(mha_roles *roles)
{
    if (!roles) return;
    nn_roles_free(&roles->r);
    free(roles);
}

mha_status mha_roles_about(mha_context *ctx, const mha_roles *roles, mha_roles_info *info)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, roles, "roles")) || (status = nn_public_need(ctx, info, "info"))) return status;
    const nn_roles *r = &roles->r;
    mha_roles_info all = {.images = r->images,
                          .shuffles = r->shuffles,
                          .blocks = r->blocks,
                          .heads = r->heads,
                          .level = r->level,
                          .class_token = r->froms == NN_FROMS};
    return nn_public_give(ctx, info, &all, sizeof all, "mha_roles_info");
}

/* Whether there are scores of this head from these queries. */
static bool exists(const nn_roles *r, int64_t n, mha_role_from from)
{
    return n >= 0 && n < r->heads && (int)from >= 0 && (int)from < r->froms;
}

mha_status mha_roles_get(mha_context *ctx, const mha_roles *roles, int64_t n, mha_role_from from, int64_t role,
                         mha_role_score *score)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, roles, "roles")) || (status = nn_public_need(ctx, score, "score"))) return status;
    const nn_roles *r = &roles->r;
    if (n < 0 || n >= r->heads)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "head %lld: there are %lld", (long long)n, (long long)r->heads);
    if (!role_of(role))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "role %lld: there are %d", (long long)role, NN_ROLES);
    if (!exists(r, n, from))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                              from == MHA_ROLE_FROM_CLASS ? "the model has no class token"
                                                          : "from: there are no such queries");
    if (mha_role_is_position(role) && from != MHA_ROLE_FROM_PATCHES)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: a role by position is one of patches", mha_role_key(role));
    const nn_role_score *s = nn_roles_get(r, n, (nn_role_from)from, role);
    int64_t first = n;
    while (first > 0 && r->block[first - 1] == r->block[n]) first--;
    mha_role_score all = {.block = r->block[n],
                          .head = n - first,
                          .score = s->score,
                          .lift = s->lift,
                          .variation = s->variation,
                          .z = s->z,
                          .p = s->p,
                          .p_alone = s->p_alone,
                          .named = s->named};
    return nn_public_give(ctx, score, &all, sizeof all, "mha_role_score");
}

int64_t mha_roles_best(const mha_roles *roles, int64_t n, mha_role_from from, bool position)
{
    return roles && exists(&roles->r, n, from) ? nn_roles_best(&roles->r, n, (nn_role_from)from, position) : -1;
}
