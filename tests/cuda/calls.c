#include "cuda/calls.h"
#include "cuda/gpu.h"

#include <ref.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *shape_text(shape s)
{
    static char text[200];
    snprintf(text, sizeof text, "%s D%lld E%lld %s%s B%lld H%lld/%lld %lldx%lld %s", mha_type_name(s.type),
             (long long)s.D, (long long)s.E, s.causal ? "causal" : "full",
             !s.causal                       ? ""
             : s.align == MHA_ALIGN_TOP_LEFT ? " top left"
                                             : " bottom right",
             (long long)s.B, (long long)s.H, (long long)s.G, (long long)s.Tq, (long long)s.Tk,
             s.layout == BHTD ? "BHTD" : "BTHD");
    return text;
}

/* ---- Making ----------------------------------------------------------------------------------------------------- */

static bool of_keys(int tensor) { return tensor == K || tensor == V || tensor == DK || tensor == DV; }

static int64_t width_of(shape s, int tensor)
{
    return tensor == V || tensor == DV || tensor == OUT || tensor == DOUT ? s.E : s.D;
}

static mha_tensor view(shape s, int tensor, void *data)
{
    int64_t heads = of_keys(tensor) ? s.G : s.H, length = of_keys(tensor) ? s.Tk : s.Tq, width = width_of(s, tensor);
    if (s.layout == BHTD) return mha_tensor_4d(data, s.type, s.B, heads, length, width);
    return mha_tensor_swap(mha_tensor_4d(data, s.type, s.B, length, heads, width), 1, 2);
}

/* Element n of (B,H,T,D), in the memory of a view. */
static int64_t place(mha_tensor t, int64_t n)
{
    int64_t at = 0;
    for (int axis = 3; axis >= 0; n /= t.size[axis], axis--) at += n % t.size[axis] * t.stride[axis];
    return at;
}

static void fill(call *c, int tensor, rng *r)
{
    uint16_t *numbers = array(c->count[tensor] + 1, sizeof *numbers);
    for (int64_t n = 0; n < c->count[tensor]; n++) {
        double x = round_to(c->shape.type, rng_normal(r));
        c->exact[tensor][n] = x;
        element_set(&numbers[place(c->view[tensor], n)], c->shape.type, x);
    }
    gpu_write(c->device[tensor], numbers, (size_t)c->count[tensor] * sizeof *numbers);
    free(numbers);
}

void call_refill(call *c, rng *r)
{
    for (int n = 0; n < INPUTS; n++) fill(c, n, r);
    call_poison(c);
}

void call_poison(call *c)
{
    size_t rows = (size_t)(c->shape.B * c->shape.H * c->shape.Tq);
    for (int n = INPUTS; n < TENSORS; n++) gpu_poison(c->device[n], (size_t)c->count[n] * 2);
    gpu_poison(c->lse, rows * sizeof(float));
    gpu_poison(c->softmax, rows * 2 * sizeof(float));
}

call call_make(shape s, rng *r)
{
    if (!s.E) s.E = s.D;
    call c = {.shape = s, .options = MHA_ATTENTION_DEFAULTS};
    int64_t rows = s.B * s.H * s.Tq;
    c.options.causal = s.causal;
    c.options.align = s.align;
    if (s.scale != 0) c.options.scale = s.scale;
    for (int n = 0; n < TENSORS; n++) {
        c.count[n] = s.B * (of_keys(n) ? s.G * s.Tk : s.H * s.Tq) * width_of(s, n);
        c.device[n] = gpu_make((size_t)c.count[n] * 2);
        c.view[n] = view(s, n, c.device[n]);
        c.exact[n] = array(c.count[n] + 1, sizeof(double));
    }
    c.lse_exact = array(rows + 1, sizeof(double));
    c.lse = gpu_make((size_t)rows * sizeof(float));
    c.softmax = gpu_make((size_t)rows * 2 * sizeof(float));
    c.lse_view = mha_tensor_3d(c.lse, MHA_FLOAT32, s.B, s.H, s.Tq);
    c.softmax_view = mha_tensor_4d(c.softmax, MHA_FLOAT32, s.B, s.H, s.Tq, 2);
    call_refill(&c, r);
    return c;
}

void call_free(call *c)
{
    bool whole = gpu_free(c->lse);
    whole &= gpu_free(c->softmax);
    for (int n = 0; n < TENSORS; n++) {
        whole &= gpu_free(c->device[n]);
        free(c->exact[n]);
    }
    free(c->lse_exact);
    if (!whole) {
        printf("    %s: a kernel wrote behind its tensor\n", shape_text(c->shape));
        exit(1);
    }
}

/* ---- Calling ---------------------------------------------------------------------------------------------------- */

mha_status call_forward(mha_context *ctx, const call *c)
{
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.lse = c->lse_view;
    extras.softmax = c->softmax_view;
    return mha_attention_forward(ctx, c->view[OUT], &extras, c->view[Q], c->view[K], c->view[V], &c->options);
}

mha_status call_backward(mha_context *ctx, const call *c, bool softmax)
{
    mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
    mha_tensor none = MHA_NO_TENSOR;
    gradients.q = c->view[DQ], gradients.k = c->view[DK], gradients.v = c->view[DV];
    mha_attention_saved saved = {c->view[Q], c->view[K], c->view[V], c->view[OUT], softmax ? c->softmax_view : none};
    return mha_attention_backward(ctx, &gradients, &saved, c->view[DOUT], none, &c->options);
}

void call_solve(call *c)
{
    shape s = c->shape;
    ref_attention a = {.B = s.B,
                       .H = s.H,
                       .G = s.G,
                       .Tq = s.Tq,
                       .Tk = s.Tk,
                       .D = s.D,
                       .E = s.E,
                       .q = c->exact[Q],
                       .k = c->exact[K],
                       .v = c->exact[V],
                       .scale = s.scale != 0 ? (double)s.scale : (double)NAN,
                       .causal = s.causal,
                       .align = s.align == MHA_ALIGN_TOP_LEFT ? REF_TOP_LEFT : REF_BOTTOM_RIGHT,
                       .window_left = c->options.window_left,
                       .window_right = c->options.window_right};
    ref_result result = {.out = c->exact[OUT], .lse = c->lse_exact};
    ref_attention_forward(&a, &result);
    ref_gradients gradients = {.dout = c->exact[DOUT], .dq = c->exact[DQ], .dk = c->exact[DK], .dv = c->exact[DV]};
    ref_attention_backward(&a, &gradients);
}

/* ---- Comparing -------------------------------------------------------------------------------------------------- */

void *call_bits(const call *c, size_t *bytes)
{
    size_t rows = (size_t)(c->shape.B * c->shape.H * c->shape.Tq) * sizeof(float);
    *bytes = 3 * rows;
    for (int n = INPUTS; n < TENSORS; n++) *bytes += (size_t)c->count[n] * 2;
    char *all = array((int64_t)*bytes + 1, 1), *at = all;
    gpu_read(at, c->lse, rows), at += rows;
    gpu_read(at, c->softmax, 2 * rows), at += 2 * rows;
    for (int n = INPUTS; n < TENSORS; n++) gpu_read(at, c->device[n], (size_t)c->count[n] * 2), at += c->count[n] * 2;
    return all;
}
