/* The kernels of narrow heads and short sequences, by those of general attention. */
#include "cuda/fake/small.h"
#include "cuda/attention/small.h"
#include "cuda/fake/backward.h"
#include "cuda/fake/general.h"

static int32_t up(int32_t a, int32_t b) { return (a + b - 1) / b; }

static mha_cuda_view view(mha_cuda_rows t, mha_type type, int64_t B, int64_t H, int64_t T, int64_t D)
{
    return (mha_cuda_view){t.data, {B, H, T, D}, {t.batch, t.head, t.row, 1}, (int32_t)type};
}

static mha_cuda_general general_of(const mha_cuda_small *c, mha_type type, int32_t B)
{
    const int32_t H = c->G * c->group, Tq = c->Tq, Tk = c->Tk, D = c->D, E = c->E;
    mha_cuda_general g = {.B = B, .H = H, .G = c->G, .share = c->group, .Tq = Tq, .Tk = Tk, .D = D, .E = E};
    const int64_t Q = c->query_starts.data ? 1 : B, K = c->key_starts.data ? 1 : B, rows = c->query_rows,
                  keys = c->key_rows;
    g.q = view(c->q, type, Q, H, rows, D), g.dq = view(c->dq, type, Q, H, rows, D);
    g.k = view(c->k, type, K, c->G, keys, D), g.dk = view(c->dk, type, K, c->G, keys, D);
    g.v = view(c->v, type, K, c->G, keys, E), g.dv = view(c->dv, type, K, c->G, keys, E);
    g.out = view(c->out, type, Q, H, rows, E), g.dout = view(c->dout, type, Q, H, rows, E);
    g.softmax = c->softmax;
    g.scale = c->scale, g.kept = 1, g.window_left = g.window_right = -1;
    g.causal = c->causal, g.align = c->align, g.offsets = c->offsets;
    g.query_lengths = c->query_lengths, g.key_lengths = c->key_lengths;
    g.query_starts = c->query_starts, g.key_starts = c->key_starts;
    return g;
}

/* Of sequences that are alike. */
static const char *alike(const mha_cuda_small *c)
{
    if (c->Tq > 128 || c->Tk > 128) return "lengths";
    if (c->Tq != c->query_rows || c->Tk != c->key_rows) return "rows";
    if (c->offset && c->offset != c->Tk && c->offset != c->Tk - c->Tq) return "an offset of no alignment";
    return c->causal == (c->offset < c->Tk) || c->Tq == 0 ? NULL : "an offset";
}

size_t fake_small_bytes(const char *name)
{
    return strncmp(name, "small_", strlen("small_")) ? 0 : sizeof(mha_cuda_small);
}

const char *fake_small(const fake_launch *l)
{
    const mha_cuda_small *c = (const void *)l->parameter;
    const bool backward = strstr(l->name, "backward");
    const int32_t heads = backward ? c->G : c->G * c->group, rows = up(c->Tq < 128 ? c->Tq : 128, 16),
                  keys = up(c->Tk < 128 ? c->Tk : 128, 16), widest = c->D > c->E ? c->D : c->E,
                  W = strstr(l->name, "_32") ? 32 : 16;
    if (c->D % 8 || c->E % 8 || (W == 16 ? widest > 16 : widest <= 16 || widest > 32)) return "widths";
    if (!strstr(l->name, "_sequences") && alike(c)) return alike(c);
    if (c->ways.small != 128) return "ways";
    if (!heads || l->blocks % (unsigned)heads) return "blocks";
    if (l->threads != 32u * (unsigned)(backward ? rows + keys : rows > keys ? rows : keys)) return "threads";
    unsigned tiles = (unsigned)((backward ? 2 * keys + 2 * rows : 2 * keys + rows) * 16 * (W + 8) * 2);
    if (l->shared != tiles + (backward ? (unsigned)rows * 16 * 2 * 4 : 0)) return "shared memory";
    mha_cuda_general g =
        general_of(c, strstr(l->name, "_bf16") ? MHA_BFLOAT16 : MHA_FLOAT16, (int32_t)l->blocks / heads);
    if (!backward) {
        g.lse = c->lse;
        fake_general_forward_of(&g, c->ways, MHA_CUDA_BY_SMALL_HEADS);
        return NULL;
    }
    if (!c->softmax.data == !c->lse.data) return "lse and softmax";
    fake_general_backward("rows", &g);
    fake_general_backward("keys", &g);
    return NULL;
}
