/* A decoder whose heads are made by hand, without MLPs and with an RMS norm, whose rows are
 *
 *     token (one-hot, V) | position (one-hot, P) | previous token (one-hot, V), written by the first block
 *
 *     block 0   head 0 attends to the previous token and copies it; head 1 to the first token; head 2 to all equally
 *     block 1   head 0 to the token behind an earlier occurrence (induction); head 1 to the same token, itself included;
 *               head 2 to itself */
#ifndef PLANTED_MODEL_H
#define PLANTED_MODEL_H

#include "public/model.h"
#include "support/harness.h"

#include <stdlib.h>

enum { PLANTED_V = 40, PLANTED_P = 96, PLANTED_M = 2 * PLANTED_V + PLANTED_P, PLANTED_H = 3, PLANTED_D = PLANTED_P };

static inline nn_description planted_description(void)
{
    nn_description d = {.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS};
    nn_blocks_config *b = &d.decoder.blocks;
    d.decoder.input.vocabulary = PLANTED_V;
    d.decoder.input.position_kind = NN_POSITIONS_LEARNED;
    d.decoder.input.positions = PLANTED_P;
    b->width = PLANTED_M, b->depth = 2, b->heads = PLANTED_H, b->head_width = PLANTED_D, b->mlp = 4;
    b->causal = true, b->norm = NN_RMS_NORM, b->norm_bias = false;
    d.output = (nn_output_config){.classes = PLANTED_V, .scale = 1};
    return d;
}

/* The numbers of a part; NULL if there is none. */
static inline float *planted_part(mha_model *m, nn_part_kind kind, int64_t block)
{
    nn_part part;
    for (nn_parts w = nn_parts_of(&m->d); nn_parts_next(&w, &part);)
        if (part.kind == kind && (block < 0 || part.block == block)) return m->parameters + part.first;
    return NULL;
}

/* Row `to` of head h of a projection (O,M) reads number `from` of a row. */
static inline void planted_read(float *w, int h, int to, int from, float x)
{
    w[(h * PLANTED_D + to) * PLANTED_M + from] = x;
}

static inline void planted_gains(mha_model *m)
{
    for (int n = 0; n < 5; n++) {
        float *gains = n < 4 ? planted_part(m, n % 2 ? NN_NORM2 : NN_NORM1, n / 2) : planted_part(m, NN_FINAL_NORM, -1);
        for (int i = 0; i < PLANTED_M; i++) gains[i] = 1;
    }
}

static inline mha_model *planted_model(void)
{
    enum { V = PLANTED_V, P = PLANTED_P, M = PLANTED_M, O = PLANTED_H * PLANTED_D, STRONG = 5 };
    char error[200] = "";
    nn_description d = planted_description();
    int64_t count = nn_model_count(&d, error, sizeof error);
    if (!expect(count > 0, "%s", error)) exit(1);
    mha_model *m = calloc(1, sizeof *m);
    *m = (mha_model){.d = d, .count = count, .parameters = calloc((size_t)count, sizeof(float))};
    nn_generation_config_defaults(&m->generation);
    planted_gains(m);
    float *tokens = planted_part(m, NN_TOKENS, -1), *positions = planted_part(m, NN_POSITIONS, -1);
    for (int n = 0; n < V; n++) tokens[n * M + n] = 1;
    for (int n = 0; n < P; n++) positions[n * M + V + n] = 1;
    float *q = planted_part(m, NN_Q, 0), *k = planted_part(m, NN_K, 0), *v = planted_part(m, NN_V, 0);
    float *proj = planted_part(m, NN_PROJ, 0), *bias = planted_part(m, NN_Q_BIAS, 0);
    for (int n = 0; n < P; n++) {
        if (n + 1 < P) planted_read(q, 0, n, V + n + 1, STRONG);
        planted_read(k, 0, n, V + n, 1);
    }
    for (int n = 0; n < V; n++) {
        planted_read(v, 0, n, n, 0.11f); /* about 1 after the norm, which divides by sqrt(2/M) */
        proj[(V + P + n) * O + n] = 1;
    }
    bias[1 * PLANTED_D] = 40;
    planted_read(k, 1, 0, V, 1);
    q = planted_part(m, NN_Q, 1), k = planted_part(m, NN_K, 1);
    for (int n = 0; n < V; n++) {
        planted_read(q, 0, n, n, STRONG), planted_read(k, 0, n, V + P + n, 1);
        planted_read(q, 1, n, n, STRONG), planted_read(k, 1, n, n, 1);
    }
    for (int n = 0; n < P; n++) planted_read(q, 2, n, V + n, STRONG), planted_read(k, 2, n, V + n, 1);
    return m;
}

#endif
