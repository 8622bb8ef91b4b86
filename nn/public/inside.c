/* The tensors of mha_model_inside: their names and sizes, in the order of the struct. */
#include "public/check.h"
#include "public/model.h"
#include <stddef.h>
#include <string.h>

enum { TENSORS = NN_PUBLIC_INSIDE };
_Static_assert(offsetof(mha_model_inside, x) + TENSORS * sizeof(mha_tensor) == sizeof(mha_model_inside),
               "all but the number are tensors");

static const struct {
    const char *name, *letters;
} fields[TENSORS] = {
    {"inside.x", "(B,T,M)"},        {"inside.read", "(B,T,M)"},     {"inside.q", "(B,H,T,D)"},
    {"inside.k", "(B,G,S,D)"},      {"inside.v", "(B,G,S,E)"},      {"inside.scores", "(B,H,T,S)"},
    {"inside.heads", "(B,H,T,E)"},  {"inside.attended", "(B,T,M)"}, {"inside.middle", "(B,T,M)"},
    {"inside.mlp_read", "(B,T,M)"}, {"inside.hidden", "(B,T,F)"},   {"inside.mlp", "(B,T,M)"},
    {"inside.y", "(B,T,M)"},
};

void nn_public_inside_list(mha_tensor tensors[NN_PUBLIC_INSIDE], const mha_model_inside *inside)
{
    memcpy(tensors, (const char *)inside + offsetof(mha_model_inside, x), TENSORS * sizeof *tensors);
}

void nn_public_inside_set(mha_model_inside *inside, const mha_tensor tensors[NN_PUBLIC_INSIDE])
{
    memcpy((char *)inside + offsetof(mha_model_inside, x), tensors, TENSORS * sizeof *tensors);
}

const char *nn_public_inside_name(int n) { return fields[n].name; }

static int64_t size_of(mha_model_attention a, int64_t B, const int64_t T[2], char letter)
{
    switch (letter) {
    case 'B':
        return B;
    case 'T':
        return T[a.decoder];
    case 'S':
        return T[a.decoder && !a.cross];
    case 'M':
        return a.model_width;
    case 'F':
        return a.mlp;
    case 'H':
        return a.heads;
    case 'G':
        return a.kv_heads;
    default:
        return a.width; /* D and E */
    }
}

mha_status nn_public_inside_check(mha_context *ctx, const mha_model *m, const mha_model_inside *inside, int64_t B,
                                  const int64_t T[2])
{
    if (!inside) return MHA_OK;
    mha_model_attention a = mha_model_attention_get(m, inside->attention);
    mha_tensor tensors[TENSORS];
    mha_status status = MHA_OK;
    if (!a.heads)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "inside.attention: %lld is no attention of the model",
                              (long long)inside->attention);
    if (inside->hidden.rank && !a.mlp)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "inside.hidden: the MLP is a mixture of experts");
    nn_public_inside_list(tensors, inside);
    for (int n = 0; n < TENSORS && !status; n++) {
        int64_t size[4] = {0};
        int rank = 0;
        for (const char *letter = fields[n].letters + 1; *letter; letter += 2) size[rank++] = size_of(a, B, T, *letter);
        status = nn_public_tensor(ctx, &tensors[n], fields[n].name, fields[n].letters, rank, size);
    }
    return status;
}
