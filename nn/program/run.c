#include "program/operation.h"
#include <stdlib.h>
#include <string.h>

/* ---- Sizes ------------------------------------------------------------------------------------------------------ */

static int64_t tokens_now(const nn_run_side *side, int64_t b)
{
    return side->from.starts ? side->from.starts[b + 1] - side->from.starts[b] : side->T;
}

nn_bias_size nn_run_bias_size(const nn_run *r, bool decoder)
{
    const nn_run_side *side = &r->side[decoder];
    nn_bias_size size = {side->from.past ? side->sequences : 1, 1, 1};
    for (int64_t b = 0; b < side->sequences; b++) {
        int64_t now = tokens_now(side, b), all = now + (side->from.past ? side->from.past[b] : 0);
        if (now > size.Tq) size.Tq = now;
        if (all > size.Tk) size.Tk = all;
    }
    if (size.Tq > size.Tk) size.Tk = size.Tq;
    return size;
}

int64_t nn_run_rows(const nn_run *r, nn_extent extent, bool decoder)
{
    const nn_description *d = r->program->d;
    const nn_run_side *side = &r->side[decoder];
    const nn_input_config *in = decoder ? &d->decoder.input : &d->encoder.input;
    nn_bias_size pairs;
    switch (extent) {
    case NN_ROWS:
        return side->B * side->T;
    case NN_PATCHES:
        return side->B * (side->T - in->class_token - in->distilled);
    case NN_SEQUENCES:
        return side->sequences;
    case NN_RESULTS:
        return d->output.pool ? side->sequences : r->call->rows ? r->call->row_count : side->B * side->T;
    case NN_SEQUENCE:
        return side->T;
    case NN_PAIRS:
        if (!r->program->pairs) return 0;
        pairs = nn_run_bias_size(r, decoder);
        return pairs.B * pairs.Tq * pairs.Tk;
    case NN_EXTENTS:
        break;
    }
    return 0;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

enum { LINE = 64 }; /* bytes */

static size_t slot_bytes(const nn_memory *m, const nn_slot *s)
{
    size_t row = (size_t)s->columns * mha_type_size(s->type);
    return ((size_t)m->rows[s->decoder][s->extent] * row + LINE - 1) / LINE * LINE;
}

/* Places of slots that are in use, by offset. */
typedef struct used {
    size_t from, to;
    int32_t end;
} used;

/* The first gap that is large enough, among those in use at the time at which the slot begins: slots come in the order of
 * that time. */
static size_t place(used *all, int32_t *count, const nn_slot *slot, size_t bytes)
{
    int32_t kept = 0, at = 0;
    size_t offset = 0;
    for (int32_t n = 0; n < *count; n++)
        if (all[n].end >= slot->begin) all[kept++] = all[n];
    while (at < kept && all[at].from - offset < bytes) offset = all[at++].to;
    memmove(all + at + 1, all + at, (size_t)(kept - at) * sizeof *all);
    all[at] = (used){offset, offset + bytes, slot->end};
    *count = kept + 1;
    return offset;
}

static bool grow_offsets(nn_memory *m, int32_t slots)
{
    if (slots <= m->offset_room) return true;
    size_t *offset = realloc(m->offset, (size_t)slots * sizeof *offset);
    if (!offset) return false;
    m->offset = offset;
    m->offset_room = slots;
    return true;
}

static bool same_sizes(const nn_memory *m, const nn_run *r, int64_t rows[2][NN_EXTENTS])
{
    for (int side = 0; side < 2; side++)
        for (int n = 0; n < NN_EXTENTS; n++) rows[side][n] = nn_run_rows(r, (nn_extent)n, side);
    return m->program == r->program && memcmp(rows, m->rows, sizeof m->rows) == 0;
}

/* Lays out all slots for m->rows; returns how many bytes that takes, or 0 without the memory to find out. */
static size_t lay_slots(nn_memory *m, const nn_program *p)
{
    used *all = malloc(((size_t)p->slots + 1) * sizeof *all);
    int32_t count = 0;
    size_t most = LINE;
    bool ok = all && grow_offsets(m, p->slots);
    for (int32_t n = 0; ok && n < p->slots; n++) {
        size_t bytes = slot_bytes(m, &p->slot[n]);
        m->offset[n] = place(all, &count, &p->slot[n], bytes);
        if (m->offset[n] + bytes > most) most = m->offset[n] + bytes;
    }
    free(all);
    return ok ? most : 0;
}

mha_status nn_memory_lay(nn_memory *m, nn_run *r)
{
    int64_t rows[2][NN_EXTENTS];
    if (same_sizes(m, r, rows)) return MHA_OK;
    memcpy(m->rows, rows, sizeof rows);
    m->program = NULL;
    size_t bytes = lay_slots(m, r->program);
    if (bytes > m->bytes) {
        free(m->base);
        m->bytes = 0;
        m->base = bytes <= PTRDIFF_MAX ? aligned_alloc(LINE, bytes) : NULL;
        if (m->base) m->bytes = bytes;
    }
    if (!bytes || m->bytes < bytes)
        return mha_context_fail(r->ctx, MHA_NO_MEMORY, "not enough memory for what lies between the layers");
    m->program = r->program;
    return MHA_OK;
}

int64_t nn_memory_bytes(const nn_run *r)
{
    nn_memory m = {0};
    same_sizes(&m, r, m.rows);
    size_t bytes = lay_slots(&m, r->program);
    nn_memory_free(&m);
    return bytes ? (int64_t)bytes : -1;
}

void nn_memory_free(nn_memory *m)
{
    free(m->base);
    free(m->offset);
}

/* ---- What operations ask ---------------------------------------------------------------------------------------- */

static mha_tensor matrix_at(const nn_run *r, int32_t slot, const nn_value *v, mha_type type)
{
    const nn_memory *m = r->memory;
    return mha_tensor_2d(m->base + m->offset[slot], type, m->rows[v->decoder][v->extent], v->columns);
}

mha_tensor nn_run_value(const nn_run *r, int32_t v)
{
    mha_tensor none = MHA_NO_TENSOR;
    return v < 0 ? none : matrix_at(r, r->program->value[v].slot, &r->program->value[v], r->program->value[v].type);
}

mha_tensor nn_run_gradient(const nn_run *r, int32_t v)
{
    mha_tensor none = MHA_NO_TENSOR;
    if (v < 0 || r->program->value[v].gradient < 0) return none;
    if (v == r->program->result) return r->dresult;
    return matrix_at(r, r->program->value[v].gradient, &r->program->value[v], MHA_FLOAT32);
}

mha_tensor nn_run_weight_gradient(const nn_run *r, const nn_weight *w)
{
    mha_tensor none = MHA_NO_TENSOR;
    if (!w) return none;
    float *at = r->gradients + w->first;
    return w->value.rank == 1 ? mha_tensor_1d(at, MHA_FLOAT32, w->value.size[0])
                              : mha_tensor_2d(at, MHA_FLOAT32, w->value.size[0], w->value.size[1]);
}

const nn_given *nn_run_given(const nn_run *r, int32_t v)
{
    for (int32_t n = 0; n < r->givens; n++)
        if (r->given[n].value == v) return &r->given[n];
    return NULL;
}

mha_status nn_run_take(const nn_run *r, const nn_given *given)
{
    mha_tensor to = nn_run_value(r, given->value),
               from = mha_tensor_2d(given->rows, MHA_FLOAT32, to.size[0], to.size[1]);
    from.stride[0] = given->step * to.size[1];
    return mha_tensor_copy(r->ctx, to, from);
}

mha_status nn_zero(mha_context *ctx, mha_tensor x)
{
    static const float zero = 0;
    mha_tensor from = x;
    from.data = (void *)&zero;
    from.type = MHA_FLOAT32;
    for (int axis = 0; axis < x.rank; axis++) from.stride[axis] = 0;
    return mha_tensor_copy(ctx, x, from);
}

mha_status nn_write_or_add(mha_context *ctx, mha_tensor to, mha_tensor from, bool add)
{
    return add ? mha_add(ctx, to, from) : mha_tensor_copy(ctx, to, from);
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

/* A tap has the shape of the value, or its rows as sequences. */
static mha_status copy_to_tap(const nn_run *r, const nn_tap *tap)
{
    const nn_value *v = &r->program->value[tap->value];
    mha_tensor from = nn_run_value(r, tap->value);
    if (tap->to.rank == 3) from = nn_run_sequences(&r->side[v->decoder], from);
    return mha_tensor_copy(r->ctx, tap->to, from);
}

static mha_status serve_taps(const nn_run *r, const nn_step *s)
{
    for (int32_t n = 0; n < r->taps; n++)
        for (int w = 0; w < NN_STEP_WRITES && s->write[w] >= 0; w++)
            if (s->write[w] == r->tap[n].value) TRY(copy_to_tap(r, &r->tap[n]));
    return MHA_OK;
}

mha_status nn_run_forward(nn_run *r, int32_t first, int32_t last)
{
    for (int32_t n = first; n < last; n++) {
        const nn_step *s = &r->program->step[n];
        TRY(s->operation->run(r, s));
        if (r->taps) TRY(serve_taps(r, s));
    }
    return MHA_OK;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* The gradient by the result, with zeros in rows of padding, which nobody looks at. */
static mha_status take_gradient(nn_run *r, const float *dresult)
{
    const nn_program *p = r->program;
    const nn_value *v = &p->value[p->result];
    const nn_run_side *side = &r->side[v->decoder];
    r->dresult = mha_tensor_2d(dresult, MHA_FLOAT32, nn_run_rows(r, v->extent, v->decoder), v->columns);
    if (p->d->output.pool || !side->from.lengths) return MHA_OK;
    mha_tensor to = matrix_at(r, v->gradient, v, MHA_FLOAT32);
    TRY(mha_tensor_copy(r->ctx, to, r->dresult));
    for (int64_t b = 0; b < side->B; b++) {
        mha_tensor padding = to;
        int64_t length = side->from.lengths[b];
        padding.size[0] = side->T - length;
        padding.data = (float *)to.data + (b * side->T + length) * v->columns;
        if (length < side->T) TRY(nn_zero(r->ctx, padding));
    }
    r->dresult = to;
    return MHA_OK;
}

mha_status nn_run_backward(nn_run *r, const float *dresult)
{
    const nn_program *p = r->program;
    TRY(take_gradient(r, dresult));
    for (int32_t n = p->steps - 1; n >= 0; n--) {
        const nn_step *s = &p->step[n];
        if (!nn_run_wants(r, s->write[0])) continue;
        if (s->operation->back) TRY(s->operation->back(r, s));
        for (int i = 0; i < NN_STEP_READS; i++)
            if (s->operation->passes >> i & 1 && s->back[i])
                TRY(nn_write_or_add(r->ctx, nn_run_gradient(r, s->read[i]), nn_run_gradient(r, s->write[0]),
                                    s->back[i] == NN_BACK_ADD));
    }
    return MHA_OK;
}
