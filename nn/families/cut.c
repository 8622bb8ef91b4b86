#include "families/cut.h"

bool nn_shape_fits(const nn_shape *s, const nn_safetensors_tensor *t)
{
    const int64_t *size = s->whole;
    int64_t all = 1;
    int at = 0, want = 0, rank = s->whole_rank;
    for (int n = 0; n < rank; n++) all *= size[n];
    if (t->count != all) return false;
    while (want < rank - 1) {
        while (want < rank - 1 && size[want] == 1) want++;
        while (at < t->rank && t->shape[at] == 1) at++;
        if (want == rank - 1) break;
        if (at == t->rank || t->shape[at++] != size[want++]) return false;
    }
    return true;
}

mha_tensor nn_shape_view(const nn_shape *s, const void *numbers, mha_type type)
{
    mha_tensor view = {
        .data = (char *)(uintptr_t)numbers + (size_t)s->first * mha_type_size(type), .type = type, .rank = s->rank};
    for (int i = 0; i < s->rank; i++) view.size[i] = s->size[i], view.stride[i] = s->stride[i];
    return view;
}

/* One behind another, as dense numbers. */
static nn_shape dense(int64_t rows, int64_t columns)
{
    if (!columns) return (nn_shape){1, {rows}, {1}, 0, 1, {rows}};
    return (nn_shape){2, {rows, columns}, {columns, 1}, 0, 2, {rows, columns}};
}

static nn_shape cut_rows(nn_shape s, int64_t all, int64_t first)
{
    s.whole[0] = all;
    s.first = first * s.stride[0];
    return s;
}

static nn_shape cut_columns(int64_t rows, int64_t columns, int64_t all, int64_t first)
{
    if (!columns) return cut_rows(dense(rows, 0), all, first);
    return (nn_shape){2, {rows, columns}, {1, all}, first, 2, {columns, all}};
}

/* (G,H/G+2,D,K): the heads of queries that share a key/value head, that of keys and that of values; H = G: (H,3,D,K). */
static nn_shape cut_heads(int64_t columns, const nn_cut_sizes *c, int which)
{
    int64_t D = c->head_width, K = columns ? columns : 1, G = c->kv_heads;
    int64_t share = c->heads / G, run = (share + 2) * D;
    int64_t rows = which ? D : share * D, first = which ? (share + which - 1) * D : 0;
    if (G == 1) return cut_rows(dense(rows, columns), run, first);
    nn_shape s = {3, {G, rows, K}, {run * K, K, 1}, first * K, 2, {G * run, K}};
    if (!columns) s.rank = 2, s.whole_rank = 1;
    return s;
}

/* (4,3,N/4,K): quarter by quarter. */
static nn_shape cut_quarters(int64_t all_rows, int64_t K, int which)
{
    int64_t rows = all_rows / 4;
    return (nn_shape){3, {4, rows, K}, {3 * rows * K, K, 1}, which * rows * K, 2, {3 * all_rows, K}};
}

/* (experts,K,N) or (experts,K,2N) in which every other column counts. */
static nn_shape cut_expert(int64_t N, int64_t columns, const nn_cut_sizes *c, int64_t step, int64_t first)
{
    int64_t K = columns ? columns : 1;
    nn_shape s = {2, {N, K}, {step, step * N}, c->expert * K * N * step + first, 3, {c->experts, K, step * N}};
    if (!columns) s = (nn_shape){1, {N}, {step}, c->expert * N * step + first, 2, {c->experts, step * N}};
    return s;
}

nn_shape nn_cut_shape(nn_cut cut, int64_t rows, int64_t columns, const nn_cut_sizes *s)
{
    /* Rows of q, k and v among those of all three: where they begin. */
    int64_t q = s->heads * s->head_width, k = s->kv_heads * s->head_width;
    const int64_t before[] = {0, q, q + k, q + 2 * k};
    switch (cut) {
    case NN_SWAPPED:
        return cut_columns(rows, columns, rows, 0);
    case NN_ROWS_Q:
    case NN_ROWS_K:
    case NN_ROWS_V:
        return cut_rows(dense(rows, columns), before[3], before[cut - NN_ROWS_Q]);
    case NN_COLUMNS_Q:
    case NN_COLUMNS_K:
    case NN_COLUMNS_V:
        return cut_columns(rows, columns, before[3], before[cut - NN_COLUMNS_Q]);
    case NN_HEADS_Q:
    case NN_HEADS_K:
    case NN_HEADS_V:
        return cut_heads(columns, s, (int)(cut - NN_HEADS_Q));
    case NN_QUARTERS_Q:
        return cut_quarters(rows, columns, 0);
    case NN_QUARTERS_K:
        return cut_quarters(rows, columns, 2);
    case NN_QUARTERS_V:
        return cut_quarters(rows, columns, 1);
    case NN_FIRST_ROWS:
        return cut_rows(dense(rows, columns), 2 * rows, 0);
    case NN_LAST_ROWS:
        return cut_rows(dense(rows, columns), 2 * rows, rows);
    case NN_EVEN:
        return cut_expert(rows, columns, s, 2, 0);
    case NN_ODD:
        return cut_expert(rows, columns, s, 2, 1);
    case NN_EXPERT:
        return cut_expert(rows, columns, s, 1, 0);
    case NN_LIFTED:
        return (nn_shape){1, {rows}, {1}, 0, 3, {1, 1, rows}};
    default:
        return dense(rows, columns);
    }
}
