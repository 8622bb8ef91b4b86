/* A span with a matrix engine. */
#ifndef MHA_CPU_BACKWARD_SPAN_ENGINE_H
#define MHA_CPU_BACKWARD_SPAN_ENGINE_H

#include "cpu/attention/backward/span.h"

/* What mha_span_layout, mha_span_load and mha_span_keys do with an engine: room, rows, tile n of the keys. */
void mha_span_engine_layout(mha_span *span, mha_arena *arena, const mha_backward *call);
void mha_span_engine_load(mha_span *span, const mha_backward *call);
void mha_span_engine_keys(mha_span *span, const mha_backward *call, int64_t n);

/* With an engine: dp (count,lanes) of the block at row r against tile n; its part of dq (D,MHA_BLOCK); and its parts of
 * dK and dV, from ds and from the weights in the tile's scores. */
void mha_span_engine_dp(mha_span *span, const mha_backward *call, int64_t r, int64_t n, int64_t count);
void mha_span_engine_dq(mha_span *span, const mha_backward *call, int64_t r, int64_t n, int64_t count, float *dq);
void mha_span_engine_dkv(mha_span *span, const mha_backward *call, int64_t r, int64_t n, int64_t count);

#endif
