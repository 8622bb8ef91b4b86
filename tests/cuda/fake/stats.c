#include "cuda/fake/stats.h"
#include "cuda/attention/statistics.h"
#include "cuda/fake/backward.h"
#include "support/naive/naive.h"

#include <string.h>

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* With so many axes, or none. */
static mha_tensor of_rank(const mha_cuda_view *v, int rank)
{
    mha_tensor t = fake_tensor(v);
    t.rank = t.rank ? rank : 0;
    return t;
}

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

/* Whether a kernel is one of those for tensor cores. */
static bool is_fast(const char *name) { return strstr(name, "f16") != NULL; }

/* How many blocks a kernel must have. */
static int64_t blocks_of(const char *name, const mha_cuda_stats *c)
{
    int64_t heads = (int64_t)c->g.B * c->g.H, tiles = heads * c->g.row_tiles, others = c->g.H - 1;
    int64_t fours = up(c->g.H, 4), passes = fours * (fours - 1) / 2 + fours % 2;
    int64_t keys = c->received.data ? c->g.Tk : 0,
            cells = c->heatmap.data ? c->heatmap.size[2] * c->heatmap.size[3] : 0;
    if (!strcmp(name, "stats_prepare")) return tiles > 0 ? tiles : 1;
    if (!strcmp(name, "stats_rows") || !strcmp(name, "stats_mass")) return tiles;
    if (!strcmp(name, "stats_pairs")) return tiles * up(others, MHA_CUDA_STATS_OTHERS);
    if (!strcmp(name, "stats_sums")) return heads * up(keys > cells ? keys : cells, MHA_CUDA_STATS_NUMBERS);
    if (!strcmp(name, "stats_heads")) return heads * c->g.H;
    if (begins(name, "stats_pairs")) return up(c->g.Tq, strstr(name, "_128") ? 64 : 128) * passes * c->g.B;
    return up(c->g.Tq, MHA_CUDA_STATS_ROWS) * heads;
}

static unsigned threads_of(const char *name)
{
    if (!is_fast(name)) return MHA_CUDA_GENERAL_THREADS;
    return begins(name, "stats_pairs") ? (strstr(name, "_128") ? 256 : 384) : 128 * (MHA_CUDA_STATS_GROUPS + 1);
}

/* Whether the copy engine knows the tensors of a kernel for tensor cores, in its boxes. */
static bool maps_are_right(const char *name, const mha_cuda_stats *c)
{
    const CUtensorMap *maps[2] = {&c->q, &c->k};
    const mha_cuda_view *views[2] = {&c->g.q, &c->g.k};
    bool pairs = begins(name, "stats_pairs"), good = true;
    const uint32_t rows[2] = {pairs ? (strstr(name, "_128") ? 64 : 128) : MHA_CUDA_STATS_BOX,
                              pairs ? MHA_CUDA_STATS_PAIR_KEYS(strstr(name, "_128") ? 128 : 64) : MHA_CUDA_STATS_KEYS};
    for (int n = 0; n < 2; n++) {
        fake_map m;
        memcpy(&m, maps[n], sizeof m);
        good = good && m.data == views[n]->data && m.rows == rows[n] && m.half == (strstr(name, "_f16") != NULL);
        for (int axis = 0; axis < 4; axis++) good = good && m.size[axis] == (uint64_t)views[n]->size[3 - axis];
    }
    return good;
}

/* What kernels leave for others is in scratch, which is the host's to lay out: each number is put where a kernel would, and
 * those of sums and pairs are computed where they end. */
static const char *clear_sums(const mha_cuda_stats *c)
{
    int64_t heads = (int64_t)c->g.B * c->g.H, cells = c->heat_sums ? c->heatmap.size[2] * c->heatmap.size[3] : 0;
    int64_t words = heads * cells * MHA_CUDA_STATS_WORDS;
    if (c->received_pitch < c->g.Tk) return "the pitch of what keys receive";
    for (int64_t n = 0; c->received_sums && n < heads * c->received_pitch; n++) c->received_sums[n] = 0;
    for (int64_t n = 0; n < words; n++) c->heat_sums[n] = 0;
    for (int64_t n = 0; c->pair_sums && n < heads * c->pair_tiles * c->g.H * 2; n++) c->pair_sums[n] = 0;
    return NULL;
}

static mha_stats wanted_of(const char *name, const mha_cuda_stats *c)
{
    mha_stats want = MHA_NO_STATS;
    if (!strcmp(name, "stats_rows") || (is_fast(name) && !begins(name, "stats_pairs"))) {
        want.entropy = of_rank(&c->entropy, 3), want.effective = of_rank(&c->effective, 3);
        want.largest = of_rank(&c->largest, 3), want.distance = of_rank(&c->distance, 3);
    }
    if (!strcmp(name, "stats_mass") || (!strcmp(name, "stats_rows") && c->sets.data)) want.mass = of_rank(&c->mass, 4);
    if (!strcmp(name, "stats_rows")) {
        want.top_weights = of_rank(&c->top_weights, 4), want.top_keys = of_rank(&c->top_keys, 4);
    }
    if (!strcmp(name, "stats_sums")) want.received = of_rank(&c->received, 3), want.heatmap = of_rank(&c->heatmap, 4);
    if (!strcmp(name, "stats_heads"))
        want.divergence = of_rank(&c->divergence, 3), want.cosine = of_rank(&c->cosine, 3);
    return want;
}

const char *fake_stats(const fake_launch *l)
{
    static mha_context idle;
    const mha_cuda_stats *c = (const void *)l->parameter;
    mha_stats_call call = {.problem = fake_problem(&c->g, &idle), .want = wanted_of(l->name, c)};
    if ((int64_t)l->blocks != blocks_of(l->name, c)) return "blocks";
    if (l->threads != threads_of(l->name)) return "threads";
    if (is_fast(l->name) && !maps_are_right(l->name, c)) return "a tensor's map";
    if (!strcmp(l->name, "stats_prepare")) return clear_sums(c);
    if (begins(l->name, "stats_pairs")) return NULL;
    call.problem.out = call.problem.q;
    call.options = (mha_stats_options)MHA_STATS_DEFAULTS;
    call.options.sets = of_rank(&c->sets, 2);
    call.options.grid_columns = c->grid_columns, call.options.grid_first = c->grid_first;
    naive_stats(&call);
    return NULL;
}
