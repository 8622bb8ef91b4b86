/* What lies inside one block, as the model computes it. */
#include "web/engine/engine.h"

#include <stdlib.h>

int page_inside(page *p, int n, const mha_model_inputs *in, const int64_t T[2])
{
    mha_model_attention a = mha_model_attention_get(p->model, n);
    mha_model_inside inside = {.attention = n};
    mha_tensor weights = MHA_NO_TENSOR;
    int64_t rows = T[a.decoder], keys = T[a.decoder && !a.cross], M = a.model_width, H = a.heads, G = a.kv_heads;
    const struct {
        page_kind kind;
        mha_tensor *to;
        int64_t heads, columns, rows; /* heads 0: (rows,columns) */
    } all[] = {
        {PAGE_X, &inside.x, 0, M, rows},
        {PAGE_READ, &inside.read, 0, M, rows},
        {PAGE_Q, &inside.q, H, a.width, rows},
        {PAGE_K, &inside.k, G, a.width, keys},
        {PAGE_V, &inside.v, G, a.width, keys},
        {PAGE_SCORES, &inside.scores, H, keys, rows},
        {PAGE_WEIGHTS, &weights, H, keys, rows},
        {PAGE_HEADS, &inside.heads, H, a.width, rows},
        {PAGE_ATTENDED, &inside.attended, 0, M, rows},
        {PAGE_MIDDLE, &inside.middle, 0, M, rows},
        {PAGE_MLP_READ, &inside.mlp_read, 0, M, rows},
        {PAGE_MLP_HIDDEN, &inside.hidden, 0, a.mlp, rows},
        {PAGE_MLP, &inside.mlp, 0, M, rows},
        {PAGE_Y, &inside.y, 0, M, rows},
    };
    if (!a.heads) return page_fail("There is no such block.");
    mha_tensor *maps = calloc((size_t)mha_model_attention_count(p->model), sizeof *maps);
    int failed = maps ? 0 : page_fail("not enough memory for the results");
    for (size_t i = 0; i < sizeof all / sizeof *all && !failed; i++) {
        int64_t heads = all[i].heads, columns = all[i].columns, count = all[i].rows;
        float *numbers = page_take(p, all[i].kind, (heads ? heads : 1) * count * columns);
        failed = numbers ? 0 : -1;
        if (columns)
            *all[i].to = heads ? mha_tensor_4d(numbers, MHA_FLOAT32, 1, heads, count, columns)
                               : mha_tensor_3d(numbers, MHA_FLOAT32, 1, count, columns);
    }
    if (!failed) {
        maps[n] = weights;
        mha_model_outputs out = {.maps = maps, .inside = &inside};
        failed = page_check(mha_model_run(page_context, p->model, &out, in));
    }
    free(maps);
    return failed;
}
