#include "cuda/fake/kernels.h"
#include "cuda/attention/statistics.h"
#include "cuda/backward.h"
#include "cuda/attention/decode.h"
#include "cuda/fake/backward.h"
#include "cuda/fake/general.h"
#include "cuda/fake/ops.h"
#include "cuda/fake/small.h"
#include "cuda/fake/stats.h"
#include "cuda/rows.h"
#include "cuda/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Names ------------------------------------------------------------------------------------------------------ */

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

/* The widths of kernels: those of forward and backward ones, then those that only forward has. */
static const int widths[] = {64, 128, 256, 96, 192};
enum { WIDTHS = sizeof widths / sizeof *widths, BACKWARD_WIDTHS = 3 };

static int width_of(const char *name)
{
    char part[8];
    int width = 0;
    for (int n = 0; n < WIDTHS; n++) {
        snprintf(part, sizeof part, "6_%d", widths[n]); /* behind bf16 or f16 */
        if (strstr(name, part)) width = widths[n];
    }
    return width;
}

size_t fake_parameter_bytes(const char *name)
{
    static const char *const forward[] = {"",          "_window", "_few",       "_window_few",
                                          "_options",  "_maps",   "_bits",      "_bias",
                                          "_bias_few", "_short",  "_short_few", "_short_options"};
    static const char *const backward[] = {"",
                                           "_window",
                                           "_options",
                                           "_prepare",
                                           "_convert",
                                           "_brief",
                                           "_brief_window",
                                           "_brief_prepare",
                                           "_brief_convert",
                                           "_maps",
                                           "_maps_prepare",
                                           "_maps_convert",
                                           "_sequences",
                                           "_sequences_prepare",
                                           "_sequences_convert",
                                           "_sequences_options",
                                           "_brief_sequences",
                                           "_brief_sequences_prepare"};
    enum { BACKWARD = sizeof backward / sizeof *backward };
    char known[64];
    for (int n = 0; n < 2 * WIDTHS; n++) {
        const char *type = n % 2 ? "bf16" : "f16";
        int width = widths[n / 2];
        for (size_t k = 0; k < sizeof forward / sizeof *forward; k++) {
            snprintf(known, sizeof known, "forward_%s_%d%s", type, width, forward[k]);
            if (!strcmp(name, known)) return sizeof(mha_cuda_forward);
        }
        for (int k = 0; n < 2 * BACKWARD_WIDTHS && k < BACKWARD; k++) {
            snprintf(known, sizeof known, "backward_%s_%d%s", type, width, backward[k]);
            if (!strcmp(name, known)) return sizeof(mha_cuda_backward);
        }
    }
    if (!strcmp(name, "forward_spans")) return sizeof(mha_cuda_spans);
    if (begins(name, "decode_")) return sizeof(mha_cuda_decode);
    if (begins(name, "general_")) return sizeof(mha_cuda_general);
    if (begins(name, "stats_")) return sizeof(mha_cuda_stats);
    if (fake_small_bytes(name)) return fake_small_bytes(name);
    return strcmp(name, "copy") ? fake_ops_bytes(name) : sizeof(mha_cuda_copy);
}

/* ---- Tensors ---------------------------------------------------------------------------------------------------- */

/* All rows of a head, (T,D). */
static double *head_of(const fake_map *m, int64_t b, int64_t h)
{
    int64_t T = (int64_t)m->size[1], D = (int64_t)m->size[0];
    double *x = array(T * D + 1, sizeof *x);
    for (int64_t t = 0; t < T; t++)
        for (int64_t d = 0; d < D; d++) x[t * D + d] = fake_number(fake_row(m, b, h, t), d, m->half);
    return x;
}

static bool has_sizes(const fake_map *m, int64_t D, int64_t T, int64_t H, int64_t B, uint32_t rows)
{
    return m->size[0] == (uint64_t)D && m->size[1] == (uint64_t)T && m->size[2] == (uint64_t)H &&
           m->size[3] == (uint64_t)B && m->rows == rows;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static int32_t up(int32_t a, int32_t b) { return (a + b - 1) / b; }

/* The keys that a row sees. */
typedef struct span {
    int64_t first, end;
} span;

static span keys_of(bool all, int64_t row, int32_t left, int32_t right, int32_t Tk)
{
    int64_t first = row + left > 0 ? row + left : 0, end = row + right + 1;
    return all ? (span){0, Tk} : (span){first, end < Tk ? end : Tk};
}

/* Row `row` of all, in a view. */
static int64_t place(const mha_cuda_view *v, int64_t row)
{
    return row / v->size[2] / v->size[1] * v->stride[0] + row / v->size[2] % v->size[1] * v->stride[1] +
           row % v->size[2] * v->stride[2];
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static void forward_head(const mha_cuda_forward *c, bool all, int b, int h)
{
    fake_map q = fake_map_of(&c->q), k = fake_map_of(&c->k), v = fake_map_of(&c->v), o = fake_map_of(&c->o);
    int64_t D = c->D, E = c->E;
    double *Q = head_of(&q, b, h), *K = c->Tk ? head_of(&k, b, h / c->group) : NULL,
           *V = c->Tk ? head_of(&v, b, h / c->group) : NULL, *s = array(c->Tk + 1, sizeof *s);
    for (int64_t i = 0; i < c->Tq; i++) {
        span seen = keys_of(all, i, c->left, c->right, c->Tk);
        bool sees = seen.first < seen.end;
        double top = -INFINITY, sum = 0, out[256] = {0};
        for (int64_t j = seen.first; j < seen.end; j++)
            top = fmax(top, s[j] = (double)c->scale * dot(Q + i * D, K + j * D, D));
        for (int64_t j = seen.first; j < seen.end; j++) {
            double w = exp2(s[j] - top);
            sum += w;
            for (int64_t d = 0; d < E; d++) out[d] += w * V[j * E + d];
        }
        for (int64_t d = 0; d < E; d++) fake_put(fake_row(&o, b, h, i), d, o.half, sees ? out[d] / sum : 0);
        float lse = sees ? (float)((top + log2(sum)) * log(2)) : -INFINITY;
        int64_t row = ((int64_t)b * c->H + h) * c->Tq + i;
        if (c->lse.data) ((float *)c->lse.data)[place(&c->lse, row)] = lse;
        if (c->softmax.data) {
            float *pair = (float *)c->softmax.data + place(&c->softmax, row);
            pair[0] = lse, pair[c->softmax.stride[3]] = sees ? 1 : 0;
        }
    }
    free(Q);
    free(K);
    free(V);
    free(s);
}

/* Whether the maps of a call are those of its tensors: in a ragged batch all rows of all sequences lie in one. */
static const char *forward_maps(const mha_cuda_forward *c, bool half, int rows, int tile_keys)
{
    fake_map q = fake_map_of(&c->q), k = fake_map_of(&c->k), v = fake_map_of(&c->v), o = fake_map_of(&c->o);
    int64_t queries = (int64_t)q.size[1], keys = (int64_t)k.size[1], B = (int64_t)q.size[3], C = (int64_t)k.size[3];
    if (q.half != half) return "another type";
    if (!c->spans && (queries != c->Tq || B != c->B || (c->Tk && (keys != c->Tk || C != c->B)))) return "rows";
    if (!has_sizes(&q, c->D, queries, c->H, B, (uint32_t)rows) || !has_sizes(&o, c->E, queries, c->H, B, 64))
        return "q or out";
    uint32_t box = (uint32_t)tile_keys;
    int64_t G = c->H / c->group;
    if (c->Tk && (!has_sizes(&k, c->D, keys, G, C, box) || !has_sizes(&v, c->E, keys, G, C, box))) return "k or v";
    return NULL;
}

/* The keys of a block: FORWARD_KERNEL in forward.cu and forward_wide.cu. */
static int keys_of_forward(const char *name, int width)
{
    static const int wide[2][3] = {{112, 96, 64}, {80, 64, 64}}; /* plain or with options, with bits, with maps */
    if (width <= 128) return strstr(name, "_short") ? 64 : 128;
    return wide[width > 192][strstr(name, "_maps") ? 2 : strstr(name, "_bits") ? 1 : 0];
}

/* Whether a kernel of D columns is the narrowest for heads of `widest`. */
static bool fits(int D, int widest)
{
    for (int n = 0; n < WIDTHS; n++)
        if (widths[n] < D && widest <= widths[n]) return false;
    return widest <= D;
}

static const char *forward(const fake_launch *l)
{
    const mha_cuda_forward *c = (const void *)l->parameter;
    bool bits = strstr(l->name, "_bits"), bias = strstr(l->name, "_bias"),
         options = bits || bias || strstr(l->name, "_options") || strstr(l->name, "_maps");
    bool many = (bias || !options) && !strstr(l->name, "_few");
    int D = width_of(l->name), rows = D != 64 || !many ? 128 : strstr(l->name, "_short") ? 256 : 192;
    int widest = c->D > c->E ? c->D : c->E;
    const char *why = forward_maps(c, begins(l->name, "forward_f16"), rows, keys_of_forward(l->name, D));
    if (why) return why;
    if (!fits(D, widest)) return "the width of another kernel";
    if ((!c->spans && c->row_tiles != up(c->Tq, rows)) || c->tiles != c->row_tiles * c->H * c->B) return "tiles";
    if (l->blocks < 1 || (int)l->blocks > c->tiles || (int)l->threads != 2 * rows + (bits && D <= 128 ? 256 : 128))
        return "blocks or threads";
    if (bits && (c->bias.data || !(c->mask.data || c->dropped))) return "a bias, or neither mask nor dropout";
    if (bias && (c->bias_stages != 2 || c->mask.data || c->dropped || c->modified)) return "not a bias alone";
    if (c->section < 1 || c->section > c->H * c->B || c->H % c->group) return "section or group";
    if (*c->counter) return "the counter is not 0";
    if (options) fake_forward_options(c, rows);
    else
        for (int n = 0; n < c->B * c->H; n++) forward_head(c, !strstr(l->name, "window"), n / c->H, n % c->H);
    return NULL;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

typedef enum sight { FULL, WINDOW, OPTIONS } sight; /* what rows see */

static int rows_of_tile(int D) { return D == 64 ? 128 : 64; }
static int keys_of_tile(int D) { return D == 256 ? 64 : 128; }

static char *plain_row(mha_cuda_rows t, int64_t b, int64_t h, int64_t row)
{
    return (char *)t.data + 2 * (b * t.batch + h * t.head + row * t.row);
}

static float lse_of(const mha_cuda_backward *c, int64_t head, int64_t row)
{
    const int64_t *stride = c->softmax.stride;
    const float *pair = c->softmax.data;
    if (!pair) return c->lse[head * c->Tq + row];
    pair += head / c->H * stride[0] + head % c->H * stride[1] + row * stride[2];
    return pair[stride[3]] > 0 ? *pair + logf(pair[stride[3]]) : -INFINITY;
}

/* Every number of scratch is written, and what the other kernels need is kept: lse and delta of rows. */
static void prepare(const mha_cuda_backward *c, int width, bool half)
{
    int rows = rows_of_tile(width);
    for (int64_t n = 0; n < (int64_t)c->B * c->G * c->bound_tiles * 2; n++) c->bounds[n] = 1;
    for (int64_t n = 0; n < (int64_t)c->B * c->G * c->key_tiles; n++) c->lost_keys[n] = 0;
    for (int64_t n = 0; n < (int64_t)c->B * c->G; n++) c->lost_heads[n] = 0;
    for (int64_t n = 0; c->powers && n < (int64_t)c->B * c->G; n++) c->powers[n] = 1;
    if (c->any) *c->any = 0;
    for (int64_t tile = 0; tile < (int64_t)c->B * c->H * c->row_tiles; tile++)
        for (int r = 0; r < rows; r++) {
            int64_t head = tile / c->row_tiles, row = tile % c->row_tiles * rows + r;
            float *about = c->rows + tile * 3 * rows + r;
            double delta = 0;
            for (int d = 0; c->bounds && d < width; d++) c->sums[(tile * rows + r) * width + d] = 0;
            if (c->lost_rows) c->lost_rows[tile] = 0;
            about[0] = INFINITY, about[rows] = 0, about[2 * rows] = 1;
            if (row >= c->Tq) continue;
            for (int d = 0; d < c->E; d++)
                delta += fake_number(plain_row(c->out, head / c->H, head % c->H, row), d, half) *
                         fake_number(plain_row(c->d_o, head / c->H, head % c->H, row), d, half);
            about[0] = lse_of(c, head, row);
            about[rows] = (float)delta;
        }
}

/* The numbers of a row of dQ go to `sums`, as float, to that of the last part if there are several, or to dQ itself. */
static void send_dq(const mha_cuda_backward *c, int width, int64_t head, int64_t row, bool half, const double *dq)
{
    int rows = rows_of_tile(width);
    int64_t tiles = (int64_t)c->B * c->H * c->row_tiles, tile = head * c->row_tiles + row / rows;
    for (int d = 0; d < c->D; d++) {
        int64_t at = (tile * rows + row % rows) * width + d;
        if (c->parts == 1) fake_put(plain_row(c->dq, head / c->H, head % c->H, row), d, half, dq[d]);
        for (int part = 0; c->parts != 1 && part < (c->parts ? c->parts : 1); part++) {
            float x = part < c->parts - 1 ? 0 : (float)dq[d];
            memcpy(&c->sums[part * tiles * rows * width + at], &x, sizeof x);
        }
    }
}

/* The score of a product, and how much it grows with the product. */
static double score_of(const mha_cuda_backward *c, sight of, double product, int b, int h, int64_t behind,
                       double *growth)
{
    const double log2_e = 1.4426950408889634;
    double score = (double)c->scale * product;
    *growth = (double)c->scale;
    if (of == OPTIONS && c->cap > 0) {
        double part = tanh(product * (double)c->cap_inverse / (2 * log2_e));
        score = (double)c->cap / log2_e * part;
        *growth *= 1 - part * part;
    }
    if (of == OPTIONS && c->slopes)
        score -= (double)c->slopes[b * c->slope_batch + h * c->slope_head] * fabs((double)behind);
    return score;
}

/* All of one key head. */
static void backward_head(const mha_cuda_backward *c, sight of, int width, int b, int g)
{
    fake_map q = fake_map_of(&c->q), d_out = fake_map_of(&c->d_out), k = fake_map_of(&c->k), v = fake_map_of(&c->v),
             dk = fake_map_of(&c->dk), dv = fake_map_of(&c->dv);
    int group = c->H / c->G, rows = rows_of_tile(width), D = c->D, E = c->E;
    double *K = head_of(&k, b, g), *V = head_of(&v, b, g), *dK = array((int64_t)c->Tk * D, sizeof *dK),
           *dV = array((int64_t)c->Tk * E, sizeof *dV);
    for (int h = g * group; h < (g + 1) * group; h++) {
        double *Q = head_of(&q, b, h), *dO = head_of(&d_out, b, h);
        for (int64_t i = 0; i < c->Tq; i++) {
            int64_t tile = ((int64_t)b * c->H + h) * c->row_tiles + i / rows, r = i % rows;
            const float *about = c->rows + tile * 3 * rows + r;
            double dq[256] = {0};
            span seen = keys_of(of == FULL, i, c->left, c->right, c->Tk);
            for (int64_t j = seen.first; j < seen.end; j++) {
                double growth, x = score_of(c, of, dot(Q + i * D, K + j * D, D), b, h, i + c->offset - j, &growth);
                double p = exp(x - (double)about[0]);
                double ds = p * (dot(dO + i * E, V + j * E, E) - (double)about[rows]) * growth;
                for (int d = 0; d < E; d++) dV[j * E + d] += p * dO[i * E + d];
                for (int d = 0; d < D; d++) {
                    dK[j * D + d] += ds * Q[i * D + d];
                    dq[d] += ds * K[j * D + d];
                }
            }
            send_dq(c, width, (int64_t)b * c->H + h, i, q.half, dq);
        }
        free(Q);
        free(dO);
    }
    for (int64_t j = 0; j < c->Tk; j++)
        for (int d = 0; d < width; d++) {
            if (d < D) fake_put(fake_row(&dk, b, g, j), d, dk.half, dK[j * D + d]);
            if (d < E) fake_put(fake_row(&dv, b, g, j), d, dv.half, dV[j * E + d]);
        }
    free(K);
    free(V);
    free(dK);
    free(dV);
}

static void convert(const mha_cuda_backward *c, int width, bool half)
{
    int rows = rows_of_tile(width);
    int64_t all = (int64_t)c->B * c->H * c->row_tiles * rows * width;
    for (int64_t n = 0; c->parts != 1 && n < (int64_t)c->B * c->H * c->Tq; n++) {
        int64_t head = n / c->Tq, row = n % c->Tq,
                at = ((head * c->row_tiles + row / rows) * rows + row % rows) * width;
        for (int d = 0; d < c->D; d++) {
            double sum = 0;
            for (int part = 0; part < (c->parts ? c->parts : 1); part++) {
                float x;
                memcpy(&x, &c->sums[part * all + at + d], sizeof x);
                sum += (double)x;
            }
            fake_put(plain_row(c->dq, head / c->H, head % c->H, row), d, half, sum);
        }
    }
}

static const char *backward(const fake_launch *l)
{
    const mha_cuda_backward *c = (const void *)l->parameter;
    int width = width_of(l->name), rows = rows_of_tile(width), keys = keys_of_tile(width);
    bool half = begins(l->name, "backward_f16");
    fake_map maps[] = {fake_map_of(&c->q), fake_map_of(&c->d_out), fake_map_of(&c->k),
                       fake_map_of(&c->v), fake_map_of(&c->dk),    fake_map_of(&c->dv)};
    if (c->D > width || c->E > width || c->D % 8 || c->E % 8) return "widths";
    for (int n = 0; n < 6; n++) {
        bool of_values = n == 1 || n == 3 || n == 5;
        uint32_t box = n < 2 ? (uint32_t)rows : n < 4 ? (uint32_t)keys : 64;
        if (maps[n].half != half) return "another type";
        if (!has_sizes(&maps[n], of_values ? c->E : c->D, n < 2 ? c->Tq : c->Tk, n < 2 ? c->H : c->G, c->B, box))
            return "a tensor's sizes";
    }
    bool brief = strstr(l->name, "_brief");
    if (c->row_tiles != up(c->Tq, rows) || c->key_tiles != up(c->Tk, keys)) return "tiles";
    if (c->bound_tiles != (brief ? 0 : up(c->Tk, 512)) || !c->bounds != brief) return "bounds";
    if (brief ? c->parts < 1 || c->parts > c->key_tiles : c->parts) return "parts";
    if (c->section < 1 || c->section > c->G * c->B || c->H % c->G) return "section or group";
    if (strstr(l->name, "prepare")) {
        if ((int)l->blocks != c->G * c->B * c->bound_tiles + c->row_tiles * c->H * c->B || l->threads != 256)
            return "blocks";
        prepare(c, width, half);
    } else if (strstr(l->name, "convert")) {
        int tiles = c->H * c->B * c->row_tiles, few = c->parts == 1 && tiles > FAKE_PROCESSORS;
        if ((int)l->blocks != (few ? FAKE_PROCESSORS : tiles) || l->threads != 256) return "blocks";
        convert(c, width, half);
    } else {
        if ((int)l->blocks != (brief ? c->parts : c->key_tiles) * c->G * c->B || l->threads != 384) return "blocks";
        sight of = strstr(l->name, "_options") ? OPTIONS : strstr(l->name, "window") ? WINDOW : FULL;
        for (int n = 0; n < c->B * c->G; n++) backward_head(c, of, width, n / c->G, n % c->G);
    }
    return NULL;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

static size_t type_size(mha_type type) { return type == MHA_FLOAT32 ? sizeof(float) : sizeof(uint16_t); }

static const char *copy(const mha_cuda_copy *c)
{
    mha_type to = (mha_type)c->to.type, from = (mha_type)c->from.type;
    for (int64_t n = 0; n < c->to.size[0] * c->to.size[1] * c->to.size[2]; n++)
        for (int64_t d = 0; d < c->to.size[3]; d++) {
            char *at = (char *)c->to.data + (place(&c->to, n) + d * c->to.stride[3]) * (int64_t)type_size(to);
            int64_t source = (place(&c->from, n) + d * c->from.stride[3]) * (int64_t)type_size(from);
            double x = c->from.data ? element_get((char *)c->from.data + source, from) : 0;
            element_set(at, to, c->add ? element_get(at, to) + x : x);
        }
    return NULL;
}

/* Whether a sequence may have fewer keys than the longest. */
static bool may_be_shorter(const mha_cuda_general *g) { return g->key_lengths.data || g->key_starts.data; }

/* Whether there are blocks enough for all keys. */
static bool has_blocks(const mha_cuda_decode *c, int width)
{
    int32_t least = mha_cuda_decode_keys(width, 0);
    if (c->g.key_starts.data) return c->slots == c->g.B + (int32_t)c->g.k.size[2] / least;
    for (int32_t length = 1; length <= c->g.Tk; length++)
        if (c->splits < up(length, mha_cuda_decode_keys(width, length)) && (length == c->g.Tk || may_be_shorter(&c->g)))
            return false;
    return !c->slots;
}

static const char *decode(const fake_launch *l)
{
    const mha_cuda_decode *c = (const void *)l->parameter;
    fake_map k = fake_map_of(&c->k), v = fake_map_of(&c->v);
    int width = width_of(l->name), widest = c->g.D > c->g.E ? c->g.D : c->g.E, rows = c->g.share * c->g.Tq;
    uint32_t tile = width > 128 ? 32 : 64;
    if (width != (widest <= 64 ? 64 : widest <= 128 ? 128 : 256)) return "a kernel of another width";
    if (!has_blocks(c, width)) return "splits or slots";
    if (!has_sizes(&k, c->g.D, c->g.k.size[2], c->g.G, c->g.k.size[0], tile) ||
        !has_sizes(&v, c->g.E, c->g.k.size[2], c->g.G, c->g.k.size[0], tile))
        return "a tensor's sizes";
    if (c->room != (rows < MHA_CUDA_DECODE_ROWS ? rows : MHA_CUDA_DECODE_ROWS)) return "rows";
    if (c->ways.decoded * c->g.share > MHA_CUDA_DECODE_ROWS) return "rows that there is no room for";
    if (c->first_head || c->heads != c->g.B * c->g.G) return "heads";
    if ((int)l->blocks != c->g.G * (c->slots ? c->slots : c->g.B * c->splits)) return "blocks";
    if (l->threads != MHA_CUDA_DECODE_THREADS) return "threads";
    for (int n = 0; n < c->g.B * c->g.G; n++)
        if (c->counters[n]) return "a counter is not 0";
    if (!c->count || *c->count) fake_general_forward_of(&c->g, c->ways, MHA_CUDA_BY_DECODING);
    return NULL;
}

/* Whether it repairs results: few blocks, which look at what is lost and start early. */
static bool repairs(const fake_launch *l)
{
    const mha_cuda_general *c = (const void *)l->parameter;
    return begins(l->name, "general") && (c->any || c->only);
}

static const char *general(const fake_launch *l)
{
    const mha_cuda_general *c = (const void *)l->parameter;
    bool forward = begins(l->name, "general_forward"), repair = begins(l->name, "general_repair");
    if (l->threads != MHA_CUDA_GENERAL_THREADS) return "threads";
    if (repairs(l) ? forward : repair) return "not for this call";
    if (repairs(l) && l->blocks > 2 * FAKE_PROCESSORS) return "blocks";
    if (c->any && !*c->any) return NULL; /* nothing is lost */
    if (c->only) return repair ? NULL : "nothing is lost here";
    if (begins(l->name, "general_map")) fake_general_map(c);
    else if (!forward && !repair) fake_general_backward(l->name, c);
    else if (forward && (int)l->blocks != c->row_tiles * c->H * c->B * c->slices) return "blocks";
    else fake_general_forward(c);
    return NULL;
}

/* Whether a kernel waits for the one before it itself, and so may start early. */
static bool waits(const fake_launch *l)
{
    return begins(l->name, "decode") || begins(l->name, "small") || begins(l->name, "backward") || repairs(l) ||
           (begins(l->name, "forward") && !begins(l->name, "forward_spans"));
}

const char *fake_run(const fake_launch *l)
{
    if (l->early != waits(l)) return l->early ? "starts early" : "does not start early";
    if (begins(l->name, "decode")) return decode(l);
    if (begins(l->name, "general")) return general(l);
    if (begins(l->name, "forward_spans")) return fake_spans(l);
    if (begins(l->name, "forward")) return forward(l);
    if (begins(l->name, "backward"))
        return strstr(l->name, "_maps") || strstr(l->name, "_sequences") ? fake_backward_parts(l) : backward(l);
    if (begins(l->name, "stats")) return fake_stats(l);
    if (begins(l->name, "small")) return fake_small(l);
    return strcmp(l->name, "copy") ? fake_ops_run(l) : copy((const void *)l->parameter);
}
