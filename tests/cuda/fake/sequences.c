/* The backward kernels of sequences that are not alike and those with maps, by the naive device. */
#include "attention/gradient.h"
#include "cuda/backward.h"
#include "cuda/fake/backward.h"
#include "cuda/fake/kernels.h"
#include "support/naive/naive.h"

#include <math.h>
#include <stdlib.h>

enum { BOUND_KEYS = 512, ROW_KINDS = 3 };

static const double log2_e = 1.4426950408889634;

static mha_tensor tensor_of(const CUtensorMap *map)
{
    fake_map m = fake_map_of(map);
    mha_tensor t = {m.data, m.half ? MHA_FLOAT16 : MHA_BFLOAT16, 4, {0}, {0}};
    for (int axis = 0; axis < 4; axis++) {
        t.size[axis] = (int64_t)m.size[3 - axis];
        t.stride[axis] = axis < 3 ? (int64_t)m.stride[2 - axis] / 2 : 1;
    }
    return t;
}

static mha_tensor rows_like(mha_tensor like, mha_cuda_rows rows)
{
    mha_tensor t = {rows.data, like.type, 4, {0}, {rows.batch, rows.head, rows.row, 1}};
    for (int axis = 0; axis < 4; axis++) t.size[axis] = like.size[axis];
    return t;
}

static mha_attention_options options_of(const mha_cuda_backward *c)
{
    mha_attention_options o = MHA_ATTENTION_DEFAULTS;
    o.scale = c->scale, o.softcap = (float)((double)c->cap / log2_e), o.align = (mha_align)c->align;
    o.window_left = c->window_left, o.window_right = c->window_right;
    o.dropout = (float)((double)c->dropped / 4294967296.0), o.dropout_seed = c->seed, o.dropout_stream = c->stream;
    o.mask = fake_tensor(&c->mask), o.bias = fake_tensor(&c->bias);
    o.offsets = fake_integers(&c->offsets);
    o.query_lengths = fake_integers(&c->query_lengths), o.key_lengths = fake_integers(&c->key_lengths);
    o.query_starts = fake_integers(&c->query_starts), o.key_starts = fake_integers(&c->key_starts);
    if (c->slopes) {
        union {
            const float *in;
            void *out;
        } slopes = {c->slopes};
        o.alibi_slopes = (mha_tensor){
            slopes.out, MHA_FLOAT32, 4, {c->slope_batch ? c->B : 1, c->H, 1, 1}, {c->slope_batch, c->slope_head, 0, 0}};
    }
    return o;
}

/* The softmax of the call, or one made from lse: free what `own` says. */
static mha_tensor softmax_of(const mha_cuda_backward *c, mha_tensor q, float **own)
{
    int64_t rows = q.size[0] * q.size[1] * q.size[2];
    if (c->softmax.data) return fake_tensor(&c->softmax);
    *own = array(2 * rows + 1, sizeof **own);
    for (int64_t n = 0; n < rows; n++) {
        bool sees = !isinf(c->lse[n]);
        (*own)[2 * n] = sees ? c->lse[n] : -INFINITY, (*own)[2 * n + 1] = sees ? 1 : 0;
    }
    return mha_tensor_4d(*own, MHA_FLOAT32, q.size[0], q.size[1], q.size[2], 2);
}

static void run(const mha_cuda_backward *c)
{
    static mha_context idle;
    float *own = NULL;
    mha_tensor q = tensor_of(&c->q), k = tensor_of(&c->k), v = tensor_of(&c->v), dout = tensor_of(&c->d_out);
    mha_gradient_call call = {.problem = {.ctx = &idle,
                                          .B = c->B,
                                          .H = c->H,
                                          .G = c->G,
                                          .Tq = c->Tq,
                                          .Tk = c->Tk,
                                          .D = c->D,
                                          .E = c->E,
                                          .share = c->H / c->G,
                                          .out = rows_like(dout, c->out),
                                          .q = q,
                                          .k = k,
                                          .v = v,
                                          .options = options_of(c),
                                          .kept = c->kept},
                              .dout = dout};
    call.problem.extras.softmax = softmax_of(c, q, &own);
    call.gradients.q = rows_like(q, c->dq);
    call.gradients.k = tensor_of(&c->dk), call.gradients.v = tensor_of(&c->dv);
    if (!c->first_slot) call.dbias = fake_tensor(&c->dbias); /* of all sequences */
    naive_backward(&call);
    free(own);
}

/* Every number of scratch is written. */
static void prepare(const mha_cuda_backward *c, int rows, int width)
{
    int64_t tiles = (int64_t)c->H * c->row_slots;
    for (int64_t n = 0; c->bounds && n < (int64_t)c->G * c->bound_slots * 2; n++) c->bounds[n] = 1;
    for (int64_t n = 0; n < tiles * ROW_KINDS * rows; n++) c->rows[n] = 0;
    for (int64_t n = 0; c->sums && n < tiles * rows * width; n++) c->sums[n] = 0;
    for (int64_t n = 0; n < (int64_t)c->B * c->G * c->key_tiles; n++) c->lost_keys[n] = 0;
    for (int64_t n = 0; n < (int64_t)c->B * c->H * c->row_tiles; n++) c->lost_rows[n] = 0;
    for (int64_t n = 0; n < (int64_t)c->B * c->G; n++) c->lost_heads[n] = 0;
    for (int64_t n = 0; c->powers && n < (int64_t)c->B * c->G; n++) c->powers[n] = 1;
    *c->any = 0;
}

static int64_t slots_of(const mha_cuda_backward *c, bool packed, int64_t rows, int size, int tiles)
{
    return packed ? c->B + rows / size : (int64_t)c->B * tiles;
}

static int up(int64_t a, int b) { return (int)((a + b - 1) / b); }

const char *fake_backward_parts(const fake_launch *l)
{
    const mha_cuda_backward *c = (const void *)l->parameter;
    int width = strstr(l->name, "_256") ? 256 : strstr(l->name, "_128") ? 128 : 64;
    int rows = width == 64 ? 128 : 64, tile_keys = width == 256 ? 64 : 128;
    mha_tensor q = tensor_of(&c->q), k = tensor_of(&c->k), v = tensor_of(&c->v), dout = tensor_of(&c->d_out);
    bool packed_q = c->query_starts.data, packed_k = c->key_starts.data, main = true;
    int64_t blocks = (int64_t)c->G * c->slots;
    if (c->D > width || c->E > width || c->D % 8 || c->E % 8) return "widths";
    if (q.type != (strstr(l->name, "_f16") ? MHA_FLOAT16 : MHA_BFLOAT16) || k.type != q.type) return "types";
    if (q.size[3] != c->D || k.size[3] != c->D || v.size[3] != c->E || dout.size[3] != c->E) return "sizes";
    if (q.size[2] != c->query_rows || k.size[2] != c->key_rows || v.size[2] != c->key_rows) return "rows";
    if (q.size[0] != (packed_q ? 1 : c->B) || k.size[0] != (packed_k ? 1 : c->B)) return "sequences";
    if (fake_map_of(&c->q).rows != (uint32_t)rows || fake_map_of(&c->k).rows != (uint32_t)tile_keys) return "boxes";
    /* Sums in order are all that there are, or those of some sequences. */
    bool ordered = c->ordered_tiles > 0, brief = ordered && !c->mixed, of_brief = strstr(l->name, "_brief");
    if (ordered &&
        (c->ways.ordered != 512 || c->parts < 1 || c->parts > c->ordered_tiles || (c->mixed && c->parts > 1)))
        return "sums in order";
    if (ordered && c->ordered_tiles != (c->key_tiles < 4 ? c->key_tiles : 4)) return "tiles in order";
    if (of_brief && !ordered) return "nothing is in order";
    if (brief && (c->Tq > 512 || c->Tk > 512)) return "not brief";
    if (c->row_tiles != up(c->Tq, rows) || c->key_tiles != up(c->Tk, tile_keys) ||
        c->bound_tiles != (brief ? 0 : up(c->Tk, BOUND_KEYS)))
        return "tiles";
    if (c->row_slots != slots_of(c, packed_q, c->query_rows, rows, c->row_tiles) ||
        c->key_slots != slots_of(c, packed_k, c->key_rows, tile_keys, c->key_tiles) ||
        c->bound_slots != (brief ? 0 : slots_of(c, packed_k, c->key_rows, BOUND_KEYS, c->bound_tiles)))
        return "slots";
    if (c->slots != c->key_slots && (c->slots != c->key_tiles || c->first_slot % c->slots || packed_k))
        return "some slots";
    if (c->dbias_adds != (c->first_slot > 0)) return "adds to a bias";
    if (c->section < 1 || c->section > c->G || c->H % c->G) return "section or group";
    if (strstr(l->name, "_prepare"))
        blocks = (int64_t)c->G * c->bound_slots + (int64_t)c->H * c->row_slots, main = false;
    if (strstr(l->name, "_convert")) blocks = (int64_t)c->H * c->row_slots, main = false;
    if (main && of_brief) blocks = (int64_t)c->parts * c->G * c->B;
    if (main && brief && !of_brief) return "there are no integers";
    if (l->blocks != (unsigned)blocks || l->threads != (main ? 384 : 256)) return "blocks or threads";
    if (main) run(c);
    if (strstr(l->name, "_prepare")) prepare(c, rows, width);
    return NULL;
}
