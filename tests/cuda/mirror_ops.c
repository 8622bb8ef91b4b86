#include "cuda/mirror_ops.h"
#include "cuda/gpu.h"
#include "cuda/spans.h"
#include "support/naive/naive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

/* The GPU's context, if there is something to do; then the tensors of the list have moved there. */
static mha_context *begin(mha_context *ctx, spans *m, mha_tensor *const *all, size_t count)
{
    *m = (spans){.count = 0};
    if (ctx->rehearsing) return NULL;
    for (size_t n = 0; n < count; n++) spans_add(m, all[n]);
    spans_to_device(m);
    return mirror_inner(ctx);
}

#define BEGIN(ctx, m, ...) \
    begin(ctx, m, (mha_tensor *[]){__VA_ARGS__}, sizeof(mha_tensor *[]){__VA_ARGS__} / sizeof(mha_tensor *))

/* What an operation without a status ran into ends the program: there is nobody to tell. */
static void end(mha_context *gpu, spans *m)
{
    mha_status status = gpu->backend->finish(gpu);
    spans_to_host(m);
    if (!status) return;
    printf("    %s\n", mha_context_error(gpu));
    exit(1);
}

static mha_status end_with(mha_context *ctx, spans *m, mha_status status)
{
    mha_status later = mirror_inner(ctx)->backend->finish(mirror_inner(ctx));
    spans_to_host(m);
    return mirror_answer(ctx, status ? status : later);
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

void mirror_copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &to, &from);
    if (!gpu) return;
    gpu->backend->copy(gpu, to, from, add);
    end(gpu, &m);
}

void mirror_fill(mha_context *ctx, mha_tensor to, float value)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &to);
    if (!gpu) return;
    gpu->backend->fill(gpu, to, value);
    end(gpu, &m);
}

void mirror_clear(mha_context *ctx, mha_tensor x, int axis, mha_tensor lengths, mha_tensor starts)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &x, &lengths, &starts);
    if (!gpu) return;
    gpu->backend->clear(gpu, x, axis, lengths, starts);
    end(gpu, &m);
}

void mirror_places(mha_context *ctx, mha_tensor places, mha_tensor starts, mha_tensor ends)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &places, &starts, &ends);
    if (!gpu) return;
    gpu->backend->places(gpu, places, starts, ends);
    end(gpu, &m);
}

void mirror_append(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor starts, mha_tensor ends)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &to, &from, &starts, &ends);
    if (!gpu) return;
    gpu->backend->append(gpu, to, from, starts, ends);
    end(gpu, &m);
}

void mirror_gate(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &to, &from, &gates);
    if (!gpu) return;
    gpu->backend->gate(gpu, to, from, gates);
    end(gpu, &m);
}

void mirror_gate_back(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates, mha_tensor dgates)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &dgated, &heads, &gates, &dgates);
    if (!gpu) return;
    gpu->backend->gate_back(gpu, dgated, heads, gates, dgates);
    end(gpu, &m);
}

void mirror_clean(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &to, &x, &dy);
    if (!gpu) return;
    gpu->backend->clean(gpu, to, x, dy);
    end(gpu, &m);
}

void mirror_average_heads(mha_context *ctx, mha_tensor to, mha_tensor maps)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &to, &maps);
    if (!gpu) return;
    gpu->backend->average_heads(gpu, to, maps);
    end(gpu, &m);
}

size_t mirror_partial_bytes(int64_t rows, int64_t columns)
{
    enum { CHUNK = 64 };
    return (size_t)((rows + CHUNK - 1) / CHUNK * columns) * sizeof(float);
}

/* Partial sums, as a tensor. */
static mha_tensor partials_of(float *partials, int64_t rows, int64_t columns)
{
    return mha_tensor_1d(partials, MHA_FLOAT32, (int64_t)(mirror_partial_bytes(rows, columns) / sizeof(float)));
}

void mirror_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials)
{
    spans m;
    mha_tensor parts = partials_of(partials, y.size[0], y.size[1]);
    mha_context *gpu = BEGIN(ctx, &m, &sum, &y, &parts);
    if (!gpu) return;
    gpu->backend->sum_rows(gpu, sum, y, parts.data);
    end(gpu, &m);
}

/* ---- Heads ------------------------------------------------------------------------------------------------------ */

void mirror_normalize(mha_context *ctx, mha_tensor to, mha_tensor kept, mha_tensor from, mha_tensor residual,
                      const mha_norm_about *norm)
{
    spans m;
    mha_norm_about own = *norm;
    mha_context *gpu = BEGIN(ctx, &m, &to, &kept, &from, &residual, &own.gain, &own.bias);
    if (!gpu) return;
    gpu->backend->normalize(gpu, to, kept, from, residual, &own);
    end(gpu, &m);
}

void mirror_normalize_back(mha_context *ctx, const mha_norm_back *to, mha_tensor dy, mha_tensor x, mha_tensor kept,
                           const mha_norm_about *norm, float *partials)
{
    spans m;
    mha_norm_about own = *norm;
    mha_norm_back back = *to;
    mha_tensor parts = partials_of(partials, x.size[0] * x.size[1] * x.size[2], 2 * norm->gain.size[0]),
               none = MHA_NO_TENSOR;
    if (!(to->dgain.rank || to->dbias.rank)) parts = none;
    mha_context *gpu = BEGIN(ctx, &m, &back.dx, &back.dgain, &back.dbias, &dy, &x, &kept, &own.gain, &own.bias, &parts);
    if (!gpu) return;
    gpu->backend->normalize_back(gpu, &back, dy, x, kept, &own, parts.data);
    end(gpu, &m);
}

mha_status mirror_rotate(const mha_rotation *rotation)
{
    spans m;
    mha_rotation r = *rotation;
    mha_context *ctx = rotation->ctx,
                *gpu = BEGIN(ctx, &m, &r.out, &r.x, &r.cos, &r.sin, &r.options.positions, &r.frequencies.values);
    if (!gpu) return MHA_OK;
    r.ctx = gpu;
    return end_with(ctx, &m, gpu->backend->rotate(&r));
}

void mirror_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines, const mha_frequencies *frequencies)
{
    spans m;
    mha_frequencies f = *frequencies;
    mha_context *gpu = BEGIN(ctx, &m, &cosines, &sines, &f.values);
    if (!gpu) return;
    gpu->backend->rotary_tables(gpu, cosines, sines, &f);
    end(gpu, &m);
}

static mha_context *begin_keys(mha_extra_keys_call *c, spans *m, mha_tensor *const *more, size_t count)
{
    mha_attention_options *o = &c->problem.options;
    mha_tensor *all[24] = {&c->problem.out, &c->problem.q,     &c->problem.k,   &c->problem.v,    &c->bias_k,
                           &c->bias_v,      &c->softmax,       &c->lse,         &c->weights,      &o->sinks,
                           &o->offsets,     &o->query_lengths, &o->key_lengths, &o->query_starts, &o->key_starts};
    size_t own = 15;
    for (size_t n = 0; n < count; n++) all[own++] = more[n];
    mha_context *ctx = c->problem.ctx, *gpu = begin(ctx, m, all, own);
    c->problem.ctx = gpu;
    return gpu;
}

void mirror_extra_keys(const mha_extra_keys_call *call)
{
    spans m;
    mha_extra_keys_call c = *call;
    mha_context *gpu = begin_keys(&c, &m, NULL, 0);
    if (!gpu) return;
    gpu->backend->extra_keys(&c);
    end(gpu, &m);
}

void mirror_extra_keys_back(const mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq, mha_tensor dbias_k,
                            mha_tensor dbias_v, double *sums)
{
    spans m;
    mha_extra_keys_call c = *call;
    mha_context *gpu = begin_keys(&c, &m, (mha_tensor *[]){&dheads, &dq, &dbias_k, &dbias_v}, 4);
    if (!gpu) return;
    gpu->backend->extra_keys_back(&c, dheads, dq, dbias_k, dbias_v, sums);
    end(gpu, &m);
}

/* ---- Products --------------------------------------------------------------------------------------------------- */

mha_status mirror_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b, const mha_matmul_options *options)
{
    spans m;
    mha_matmul_options o = *options;
    mha_context *gpu = BEGIN(ctx, &m, &c, &a, &b, &o.bias);
    if (!gpu) return MHA_OK;
    return end_with(ctx, &m, gpu->backend->matmul(gpu, c, a, b, &o));
}

/* Packed by the naive device, numbers in float64, with the type that they had behind its header. */
enum { TYPE_AT = 48 };

mha_status mirror_pack(mha_context *ctx, void *packed, mha_tensor b, mha_type a)
{
    mha_packed_about about;
    TRY(naive_pack(ctx, packed, b, a));
    if (ctx->rehearsing) return MHA_OK;
    TRY(naive_packed_about(ctx, &about, packed));
    memcpy((char *)about.memory.data + TYPE_AT, &b.type, sizeof b.type);
    return MHA_OK;
}

mha_status mirror_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                                const mha_matmul_options *options)
{
    mha_packed_about about;
    mha_type type;
    if (ctx->rehearsing) return MHA_OK;
    TRY(naive_packed_about(ctx, &about, packed));
    const double *from = (const double *)(const void *)((const char *)about.memory.data + MHA_ALIGNMENT);
    memcpy(&type, (const char *)about.memory.data + TYPE_AT, sizeof type);
    char *numbers = array(about.K * about.N + 1, sizeof(float));
    for (int64_t n = 0; n < about.K * about.N; n++)
        element_set(numbers + n * (int64_t)mha_type_size(type), type, from[n]);
    mha_status status = mirror_matmul(ctx, c, a, mha_tensor_2d(numbers, type, about.K, about.N), options);
    free(numbers);
    return status;
}

/* ---- Operations of mha_ops.h ------------------------------------------------------------------------------------ */

void mirror_activate(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &h, &slope, &z);
    if (!gpu) return;
    gpu->backend->activate(gpu, h, slope, z, activation);
    end(gpu, &m);
}

void mirror_activate_back(mha_context *ctx, mha_tensor dh, mha_tensor slope)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &dh, &slope);
    if (!gpu) return;
    gpu->backend->activate_back(gpu, dh, slope);
    end(gpu, &m);
}

void mirror_activate_gated(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &h, &slope, &z);
    if (!gpu) return;
    gpu->backend->activate_gated(gpu, h, slope, z, activation);
    end(gpu, &m);
}

void mirror_activate_gated_back(mha_context *ctx, mha_tensor slope, mha_tensor dh)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &slope, &dh);
    if (!gpu) return;
    gpu->backend->activate_gated_back(gpu, slope, dh);
    end(gpu, &m);
}

void mirror_dropout(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &to, &from);
    if (!gpu) return;
    gpu->backend->dropout(gpu, to, from, options);
    end(gpu, &m);
}

mha_status mirror_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                                mha_tensor labels, float smoothing)
{
    spans m;
    mha_context *gpu = BEGIN(ctx, &m, &dlogits, &logits, &labels);
    if (!gpu) return MHA_OK;
    return end_with(ctx, &m, gpu->backend->cross_entropy(gpu, loss, dlogits, logits, labels, smoothing));
}

/* The GPU keeps ids within the table, because it cannot be asked without waiting; here the host knows them. */
static mha_status check_ids(mha_context *ctx, mha_tensor ids, int64_t words)
{
    for (int64_t n = 0; n < ids.size[0] * ids.size[1]; n++) {
        mha_tensor row = mha_tensor_1d(mha_at(ids, n / ids.size[1], 0, 0, 0), ids.type, ids.size[1]);
        row.stride[0] = ids.stride[1];
        int64_t id = mha_integer_at(row, n % ids.size[1]);
        if (id < 0 || id >= words)
            return mha_fail(ctx, MHA_BAD_ARGUMENT, "ids: number %lld is %lld, must be from 0 to %lld", (long long)n,
                            (long long)id, (long long)words - 1);
    }
    return MHA_OK;
}

mha_status mirror_embed(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                        const mha_embedding_options *options)
{
    spans m;
    mha_embedding_options o = *options;
    TRY(check_ids(ctx, ids, table.size[0]));
    mha_context *gpu = BEGIN(ctx, &m, &y, &table, &ids, &o.positions);
    if (!gpu) return MHA_OK;
    return end_with(ctx, &m, gpu->backend->embed(gpu, y, table, ids, &o));
}

mha_status mirror_embed_back(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy, mha_tensor ids,
                             float scale)
{
    spans m;
    if (dtable.rank) TRY(check_ids(ctx, ids, dtable.size[0]));
    mha_context *gpu = BEGIN(ctx, &m, &dtable, &dpositions, &dy, &ids);
    if (!gpu) return MHA_OK;
    return end_with(ctx, &m, gpu->backend->embed_back(gpu, dtable, dpositions, dy, ids, scale));
}
