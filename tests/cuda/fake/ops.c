#include "cuda/fake/ops.h"
#include "attention/angles.h"
#include "core/philox.h"
#include "cuda/fake/backward.h"
#include "cuda/kernels.h"
#include "cuda/ops.h"
#include "cuda/product.h"
#include "support/naive/naive.h"

#include <stdlib.h>
#include <string.h>

typedef mha_cuda_view view;

static mha_context idle; /* for functions that only ask whether it rehearses */

/* ---- Tensors ---------------------------------------------------------------------------------------------------- */

static mha_tensor tensor(const view *v) { return fake_tensor(v); }

static double get(const view *v, int64_t i, int64_t j, int64_t k, int64_t l)
{
    return naive_get(tensor(v), i, j, k, l);
}

static void set(const view *v, int64_t i, int64_t j, int64_t k, int64_t l, double x)
{
    naive_set(tensor(v), i, j, k, l, x);
}

static mha_tensor integers(const view *v) { return fake_integers(v); }

static int64_t rows_of(const view *v) { return v->size[0] * v->size[1] * v->size[2]; }

/* ---- rows.cu ---------------------------------------------------------------------------------------------------- */

static void sequences(const char *name, const mha_cuda_sequences *c)
{
    mha_tensor to = tensor(&c->to);
    if (!strcmp(name, "clear")) {
        to.rank = c->axis == 2 ? 4 : 3;
        naive_clear(&idle, to, c->axis, integers(&c->lengths), integers(&c->starts));
    } else if (!strcmp(name, "places")) naive_places(&idle, to, integers(&c->starts), integers(&c->lengths));
    else naive_append(&idle, to, tensor(&c->from), integers(&c->starts), integers(&c->lengths));
}

static void pair(const char *name, const mha_cuda_pair *c)
{
    mha_tensor to = tensor(&c->to), from = tensor(&c->from),
               gates = mha_tensor_1d(c->gates, MHA_FLOAT32, c->to.size[1]);
    if (!strcmp(name, "gate")) naive_gate(&idle, to, from, gates);
    else if (!strcmp(name, "clean")) naive_clean(&idle, to, from, tensor(&c->other));
    else if (!strcmp(name, "average_heads")) {
        to.rank = 3;
        naive_average_heads(&idle, to, from);
    } else
        for (int64_t h = 0; h < to.size[1]; h++) {
            double sum = 0;
            for (int64_t n = 0; n < to.size[0] * to.size[2] * to.size[3]; n++) {
                int64_t e = n % to.size[3], t = n / to.size[3] % to.size[2], b = n / to.size[3] / to.size[2];
                sum += get(&c->to, b, h, t, e) * get(&c->from, b, h, t, e);
            }
            c->sums[h] += (float)sum;
        }
}

static void column_sums(const mha_cuda_column_sums *c)
{
    for (int64_t n = 0; n < c->chunks * c->y.size[1]; n++) {
        int64_t chunk = n / c->y.size[1];
        double sum = 0;
        for (int64_t r = chunk * MHA_CUDA_CHUNK; r < (chunk + 1) * MHA_CUDA_CHUNK && r < c->y.size[0]; r++)
            sum += get(&c->y, r, n % c->y.size[1], 0, 0);
        c->partials[n] = (float)sum;
    }
}

static void add_sums(const mha_cuda_add_sums *c)
{
    for (int64_t n = 0; n < c->columns; n++) {
        double sum = (double)c->to[n * c->stride];
        for (int64_t k = 0; k < c->chunks; k++) sum += (double)c->partials[k * c->pitch + n];
        c->to[n * c->stride] = (float)sum;
    }
}

/* ---- norm.cu ---------------------------------------------------------------------------------------------------- */

typedef struct place {
    int64_t b, h, t;
} place;

static place place_of(const view *v, int64_t row)
{
    return (place){row / v->size[1] / v->size[2], row % v->size[1], row / v->size[1] % v->size[2]};
}

static double number(const view *v, int64_t row, int64_t e)
{
    place p = place_of(v, row);
    return get(v, p.b, p.h, p.t, e);
}

static double gain_of(const mha_cuda_norm *c, int64_t row, int64_t e)
{
    return (double)c->gain[e + (c->own ? row % c->from.size[1] * c->own : 0)];
}

static void norm_forward(const mha_cuda_norm *c)
{
    int64_t D = c->from.size[3];
    mha_norm_about norm = {.gain = mha_tensor_1d(c->gain, MHA_FLOAT32, c->gains),
                           .epsilon = c->epsilon,
                           .centred = c->centred,
                           .all_heads = c->together > 1};
    if (c->bias) norm.bias = mha_tensor_1d(c->bias, MHA_FLOAT32, c->gains);
    mha_tensor kept = mha_tensor_2d(c->kept, MHA_FLOAT32, c->units, 2), none = MHA_NO_TENSOR;
    if (D) naive_normalize(&idle, tensor(&c->to), c->kept ? kept : none, tensor(&c->from), tensor(&c->residual), &norm);
}

static void norm_about(const mha_cuda_norm *c)
{
    int64_t D = c->from.size[3], count = c->together * D;
    for (int64_t u = 0; u < c->units; u++) {
        double mean = 0, square = 0, sum = 0, dot = 0, by;
        bool zero = true;
        for (int64_t e = 0; c->centred && e < count; e++)
            mean += number(&c->from, u * c->together + e / D, e % D) / (double)count;
        for (int64_t e = 0; e < count; e++) {
            double x = number(&c->from, u * c->together + e / D, e % D) - mean;
            square += x * x / (double)count;
        }
        by = 1 / sqrt(square + (double)c->epsilon);
        if (c->kept) mean = (double)c->kept[2 * u], by = (double)c->kept[2 * u + 1];
        for (int64_t e = 0; e < count; e++) {
            int64_t row = u * c->together + e / D;
            double dy = number(&c->dy, row, e % D), g = dy * gain_of(c, row, e % D);
            sum += g, dot += g * (number(&c->from, row, e % D) - mean) * by;
            zero = zero && dy == 0;
        }
        float *to = c->about + 4 * u;
        to[0] = zero ? 0 : (float)mean, to[1] = zero ? -1 : (float)by;
        to[2] = zero || !c->centred ? 0 : (float)(sum / (double)count), to[3] = zero ? 0 : (float)(dot / (double)count);
    }
}

static void norm_columns(const mha_cuda_norm *c)
{
    memset(c->partials, 0, (size_t)(c->chunks * c->pitch) * sizeof *c->partials);
    for (int64_t row = 0; row < rows_of(&c->from); row++) {
        const float *about = c->about + 4 * (row / c->together);
        for (int64_t e = 0; about[1] >= 0 && e < c->from.size[3]; e++) {
            int64_t gain = e + (c->own ? row % c->from.size[1] * c->own : 0);
            int64_t chunk = (c->own ? row / c->from.size[1] : row) / MHA_CUDA_CHUNK;
            double dy = number(&c->dy, row, e), h = (number(&c->from, row, e) - (double)about[0]) * (double)about[1];
            c->partials[chunk * c->pitch + gain] += (float)(dy * h);
            if (c->pitch > c->gains) c->partials[chunk * c->pitch + c->gains + gain] += (float)dy;
        }
    }
}

static void norm_back(const mha_cuda_norm *c)
{
    for (int64_t n = 0; n < rows_of(&c->from) * c->from.size[3]; n++) {
        int64_t row = n / c->from.size[3], e = n % c->from.size[3];
        const float *about = c->about + 4 * (row / c->together);
        double by = (double)about[1], h = (number(&c->from, row, e) - (double)about[0]) * by;
        double dx =
            by < 0 ? 0 : by * (number(&c->dy, row, e) * gain_of(c, row, e) - (double)about[2] - h * (double)about[3]);
        place p = place_of(&c->to, row);
        set(&c->to, p.b, p.h, p.t, e, c->add ? number(&c->to, row, e) + dx : dx);
    }
}

/* ---- rotary.cu -------------------------------------------------------------------------------------------------- */

static mha_angle angle_of(const mha_cuda_angles *a, int64_t i, int64_t position)
{
    mha_step ratio = {a->high, a->low}, step = {1, 0};
    for (int64_t n = 0; !a->values.data && n < i; n++) step = mha_step_multiply(step, ratio);
    if (a->values.data) step.high = get(&a->values, i, 0, 0, 0);
    return mha_angle_get(step, position, a->multiplier);
}

static void rotary(const mha_cuda_rotary *c)
{
    for (int64_t n = 0; n < rows_of(&c->from); n++) {
        int64_t t = n % c->from.size[2], h = n / c->from.size[2] % c->from.size[1],
                b = n / c->from.size[2] / c->from.size[1];
        int64_t at = c->places.data
                         ? ((const int64_t *)c->places.data)[b * c->places.stride[0] + t * c->places.stride[1]]
                         : c->first + t;
        for (int64_t i = 0; i < c->pairs; i++) {
            int64_t first = c->interleaved ? 2 * i : i, second = c->interleaved ? 2 * i + 1 : i + c->pairs;
            double cosine, sine, u = get(&c->from, b, h, t, first), v = get(&c->from, b, h, t, second);
            if (c->rows) {
                cosine = get(&c->cos, c->cos.size[0] > 1 ? b : 0, t, i, 0);
                sine = get(&c->sin, c->sin.size[0] > 1 ? b : 0, t, i, 0);
            } else if (at < c->cos.size[0]) cosine = get(&c->cos, at, i, 0, 0), sine = get(&c->sin, at, i, 0, 0);
            else {
                mha_angle angle = angle_of(&c->angles, i, at);
                cosine = (double)angle.cos, sine = (double)angle.sin;
            }
            if (c->inverse) sine = -sine;
            set(&c->to, b, h, t, first, u * cosine - v * sine);
            set(&c->to, b, h, t, second, u * sine + v * cosine);
        }
        for (int64_t e = 2 * c->pairs; e < c->from.size[3]; e++) set(&c->to, b, h, t, e, get(&c->from, b, h, t, e));
    }
}

static void rotary_tables(const mha_cuda_rotary *c)
{
    for (int64_t n = 0; n < c->cos.size[0] * c->cos.size[1]; n++) {
        int64_t p = n / c->cos.size[1], i = n % c->cos.size[1];
        mha_angle angle = angle_of(&c->angles, i, p);
        set(&c->cos, p, i, 0, 0, (double)angle.cos);
        set(&c->sin, p, i, 0, 0, (double)angle.sin);
    }
}

/* ---- ops.cu ----------------------------------------------------------------------------------------------------- */

static void activation(const char *name, const mha_cuda_activation *c)
{
    int64_t rows = c->width ? c->count / c->width : 1, N = c->width ? c->width : c->count;
    mha_tensor h = mha_tensor_2d(c->h, MHA_FLOAT32, rows, N), none = MHA_NO_TENSOR;
    mha_tensor z = mha_tensor_2d(c->z, MHA_FLOAT32, rows, c->width ? 2 * N : N), slope = z;
    mha_activation f = (mha_activation)c->activation;
    slope.data = c->slope;
    if (!strcmp(name, "activate_result")) {
        mha_tensor to = tensor(&c->to), from = mha_tensor_2d(c->z, MHA_FLOAT32, to.size[0], to.size[1]);
        naive_activate(&idle, to, none, from, f);
    } else if (!strcmp(name, "activate")) naive_activate(&idle, h, c->slope ? slope : none, z, f);
    else if (!strcmp(name, "activate_back")) naive_activate_back(&idle, h, slope);
    else if (!strcmp(name, "activate_gated")) naive_activate_gated(&idle, h, c->slope ? slope : none, z, f);
    else naive_activate_gated_back(&idle, slope, h);
}

static void dropout(const mha_cuda_dropout *c)
{
    for (int64_t n = 0; n < c->sequences * c->size; n++) {
        int64_t i = n % c->size;
        uint64_t stream = c->stream + (uint64_t)(n / c->size);
        uint32_t low = (uint32_t)stream, high = (uint32_t)(stream >> 32), path[4] = {low, high, 0, 7u << 24};
        uint32_t x[4] = {low, high, (uint32_t)(i / 256 * 32 + i % 32), 6u << 24};
        mha_philox(x, c->seed);
        mha_philox(path, c->seed);
        int half = (int)(i % 256 / 32);
        bool dropped = (x[half / 2] >> half % 2 * 16 & 0xffff) < c->below || path[0] < c->path;
        c->to[n] = c->from[n] * (dropped ? 0 : c->kept);
    }
}

static void embedding(const char *name, const mha_cuda_embedding *c)
{
    mha_tensor ids = tensor(&c->ids), table = mha_tensor_2d(c->table, MHA_FLOAT32, c->words, c->width),
               none = MHA_NO_TENSOR;
    mha_tensor y = mha_tensor_3d(c->y, MHA_FLOAT32, ids.size[0], ids.size[1], c->width);
    mha_embedding_options o = MHA_EMBEDDING_DEFAULTS;
    o.scale = c->scale, o.accumulate = c->add;
    if (c->positions) o.positions = mha_tensor_2d(c->positions, MHA_FLOAT32, ids.size[1], c->width);
    if (!strcmp(name, "embed")) naive_embed(&idle, y, table, ids, &o);
    else {
        table.data = c->y;
        y = mha_tensor_3d(c->table, MHA_FLOAT32, ids.size[0], ids.size[1], c->width);
        naive_embed_back(&idle, table, none, y, ids, c->scale);
    }
}

static void loss(const char *name, const mha_cuda_loss *c)
{
    mha_tensor labels = integers(&c->labels), none = MHA_NO_TENSOR;
    mha_tensor logits = mha_tensor_2d(c->logits, MHA_FLOAT32, c->rows, c->classes), dlogits = logits;
    mha_loss sum = {0, 0, 0};
    dlogits.data = c->dlogits;
    if (!strcmp(name, "loss_labels")) {
        c->sums->counted = c->sums->bad = 0;
        for (int64_t n = 0; n < c->rows; n++) {
            int64_t label = mha_integer_at(labels, n);
            c->sums->counted += label >= 0;
            if ((label < -1 || label >= c->classes) && !c->sums->bad) c->sums->bad = n + 1;
        }
    } else if (!strcmp(name, "loss_sums")) {
        naive_cross_entropy(&idle, &sum, c->dlogits ? dlogits : none, logits, labels, c->smoothing);
        c->sums->loss = sum.mean * (double)sum.counted, c->sums->correct = sum.correct;
    }
}

/* ---- extra_keys.cu ---------------------------------------------------------------------------------------------- */

/* The call that a kernel was started for. */
static mha_extra_keys_call call_of(const mha_cuda_extra_keys *c)
{
    mha_extra_keys_call e = {.problem = fake_problem(&c->g, &idle),
                             .count = c->count,
                             .softmax = tensor(&c->g.softmax),
                             .weights = tensor(&c->weights),
                             .lse = tensor(&c->g.lse)};
    if (c->bias_k) e.bias_k = mha_tensor_1d(c->bias_k, MHA_FLOAT32, c->g.G * c->g.D);
    if (c->bias_v) e.bias_v = mha_tensor_1d(c->bias_v, MHA_FLOAT32, c->g.G * c->g.E);
    e.lse.rank = e.lse.rank ? 3 : 0;
    return e;
}

/* The first kernel of a backward call does all of it, if gradients of the learned key are asked for. */
static void extra_keys(const char *name, const mha_cuda_extra_keys *c)
{
    mha_extra_keys_call e = call_of(c);
    mha_tensor dk = mha_tensor_1d(c->dbias_k, MHA_FLOAT32, c->g.G * c->g.D), none = MHA_NO_TENSOR;
    mha_tensor dv = mha_tensor_1d(c->dbias_v, MHA_FLOAT32, c->g.G * c->g.E);
    double *sums = array(c->g.G * (c->g.D + c->g.E), sizeof *sums);
    if (!strcmp(name, "extra_keys")) naive_extra_keys(&e);
    else if (!strcmp(name, "extra_keys_rows"))
        naive_extra_keys_back(&e, tensor(&c->g.dout), tensor(&c->g.dq), c->dbias_k ? dk : none, c->dbias_k ? dv : none,
                              sums);
    free(sums);
}

/* The kernel of a name; or MHA_CUDA_KERNEL_COUNT. */
static mha_cuda_kernel kernel_of(const char *name)
{
    int n = 0;
    while (n < MHA_CUDA_KERNEL_COUNT && strcmp(name, mha_cuda_kernel_name((mha_cuda_kernel)n)) != 0) n++;
    return (mha_cuda_kernel)n;
}

/* ---- Products --------------------------------------------------------------------------------------------------- */

static bool is_turned(const char *name, int factor) { return name[strlen(name) - 2 + (size_t)factor] == 't'; }

/* Whether a map describes a matrix, whose lines are axis `line`. */
static bool maps(const CUtensorMap *map, const view *v, int line, bool turned, int box)
{
    fake_map m;
    memcpy(&m, map, sizeof m);
    int inner = turned ? line : 1 - line;
    bool right =
        m.data == v->data && m.size[0] == (uint64_t)v->size[inner] && m.size[1] == (uint64_t)v->size[1 - inner];
    right &= m.size[2] == 1 && m.size[3] == 1 && m.rows == (uint32_t)(turned ? MHA_CUDA_PRODUCT_DEPTH : box);
    right &= v->size[inner] < 2 || v->stride[inner] == 1;
    uint64_t each = (uint64_t)mha_type_size((mha_type)v->type);
    return right && (v->size[1 - inner] < 2 || m.stride[0] == (uint64_t)v->stride[1 - inner] * each);
}

/* What is wrong with the tiles, maps and threads of a kernel for the copy engine; or NULL. */
static const char *check_engine(const fake_launch *l, const mha_cuda_product *c, mha_cuda_tile t)
{
    bool turned[2] = {is_turned(l->name, 0), is_turned(l->name, 1)};
    if (c->row_tiles != (c->M + t.rows - 1) / t.rows || c->column_tiles != (c->N + t.columns - 1) / t.columns)
        return "tiles";
    if (!maps(&c->a_map, &c->a, 0, turned[0], c->lines) || !maps(&c->b_map, &c->b, 1, turned[1], t.columns))
        return "a map";
    if (c->quick && !maps(&c->c_map, &c->c, 0, false, 16)) return "the map of results";
    if (c->lines > t.rows || (c->lines < t.rows && c->lines < c->M)) return "lines";
    return (int)l->threads == t.threads ? NULL : "threads";
}

static const char *product(const fake_launch *l)
{
    const mha_cuda_product *c = (const void *)l->parameter;
    mha_tensor to = tensor(&c->c), a = tensor(&c->a), b = tensor(&c->b);
    int kernel = (int)kernel_of(l->name), n = kernel - MHA_CUDA_K_product_bf16_64_nn;
    if (n < 2 * MHA_CUDA_TILE_KERNELS || kernel >= MHA_CUDA_K_few_1) {
        const char *wrong = check_engine(l, c, mha_cuda_kernel_tile((mha_cuda_kernel)kernel));
        if (wrong) return wrong;
    } else {
        int size = strstr(l->name, "_128_") ? 128 : strstr(l->name, "_64_") ? 64 : 32;
        if (c->row_tiles != (c->M + size - 1) / size || c->column_tiles != (c->N + size - 1) / size) return "tiles";
        if (l->threads != MHA_CUDA_THREADS) return "threads";
    }
    for (int64_t i = 0; i < c->M; i++)
        for (int64_t j = 0; j < c->N; j++) {
            double sum = 0;
            for (int64_t k = 0; k < c->K; k++) sum += naive_get(a, i, k, 0, 0) * naive_get(b, k, j, 0, 0);
            sum *= (double)c->alpha;
            if (c->old.data) sum += get(&c->old, i, j, 0, 0);
            if (c->bias.data) sum += get(&c->bias, j, 0, 0, 0);
            naive_set(to, i, j, 0, 0, sum);
        }
    return NULL;
}

/* ---- All of them ------------------------------------------------------------------------------------------------ */

size_t fake_ops_bytes(const char *name)
{
    mha_cuda_kernel k = kernel_of(name);
    if (k == MHA_CUDA_KERNEL_COUNT || k <= MHA_CUDA_K_copy) return 0;
    switch (mha_cuda_kernel_module(k)) {
    case MHA_CUDA_M_norm:
        return sizeof(mha_cuda_norm);
    case MHA_CUDA_M_rotary:
        return sizeof(mha_cuda_rotary);
    case MHA_CUDA_M_extra_keys:
        return sizeof(mha_cuda_extra_keys);
    case MHA_CUDA_M_product:
    case MHA_CUDA_M_product_half:
    case MHA_CUDA_M_product_plain:
        return sizeof(mha_cuda_product);
    case MHA_CUDA_M_ops:
        return k == MHA_CUDA_K_dropout                                    ? sizeof(mha_cuda_dropout)
               : k == MHA_CUDA_K_embed || k == MHA_CUDA_K_embed_back      ? sizeof(mha_cuda_embedding)
               : k >= MHA_CUDA_K_loss_labels && k <= MHA_CUDA_K_loss_sums ? sizeof(mha_cuda_loss)
                                                                          : sizeof(mha_cuda_activation);
    default:
        return k == MHA_CUDA_K_fill            ? sizeof(mha_cuda_fill)
               : k == MHA_CUDA_K_upload        ? sizeof(mha_cuda_upload)
               : k <= MHA_CUDA_K_append        ? sizeof(mha_cuda_sequences)
               : k <= MHA_CUDA_K_average_heads ? sizeof(mha_cuda_pair)
               : k == MHA_CUDA_K_column_sums   ? sizeof(mha_cuda_column_sums)
                                               : sizeof(mha_cuda_add_sums);
    }
}

static void run_rows(mha_cuda_kernel k, const fake_launch *l)
{
    const void *p = l->parameter;
    if (k == MHA_CUDA_K_fill) {
        const mha_cuda_fill *c = p;
        naive_fill(&idle, tensor(&c->to), c->value);
    } else if (k == MHA_CUDA_K_upload) {
        const mha_cuda_upload *c = p;
        memcpy(c->to, c->data, (size_t)c->bytes);
    } else if (k <= MHA_CUDA_K_append) sequences(l->name, p);
    else if (k <= MHA_CUDA_K_average_heads) pair(l->name, p);
    else if (k == MHA_CUDA_K_column_sums) column_sums(p);
    else add_sums(p);
}

static void run_norm(mha_cuda_kernel k, const void *p)
{
    if (k <= MHA_CUDA_K_norm_forward_wide) norm_forward(p);
    else if (k <= MHA_CUDA_K_norm_about_wide) norm_about(p);
    else if (k == MHA_CUDA_K_norm_columns) norm_columns(p);
    else norm_back(p);
}

const char *fake_ops_run(const fake_launch *l)
{
    mha_cuda_kernel k = kernel_of(l->name);
    mha_cuda_module module = mha_cuda_kernel_module(k);
    const void *p = l->parameter;
    if (module >= MHA_CUDA_M_product && module <= MHA_CUDA_M_product_plain) return product(l);
    if (l->threads != MHA_CUDA_THREADS) return "threads";
    if (module == MHA_CUDA_M_rows) run_rows(k, l);
    else if (module == MHA_CUDA_M_norm) run_norm(k, p);
    else if (k == MHA_CUDA_K_rotary) rotary(p);
    else if (k == MHA_CUDA_K_rotary_tables) rotary_tables(p);
    else if (module == MHA_CUDA_M_extra_keys) extra_keys(l->name, p);
    else if (k == MHA_CUDA_K_dropout) dropout(p);
    else if (k == MHA_CUDA_K_embed || k == MHA_CUDA_K_embed_back) embedding(l->name, p);
    else if (k >= MHA_CUDA_K_loss_labels && k <= MHA_CUDA_K_loss_sums) loss(l->name, p);
    else activation(l->name, p);
    return NULL;
}
