/* T5's bias: a number for each head and each range of distances between key and query. Of n ranges, one half is for keys
 * behind the query where it may see them; of the rest, half are single distances, and the others grow geometrically up to
 * the largest distance. If that is not above the single distances, the ranges beyond them run backwards, and end: longer
 * sequences have no bias, in transformers as here. */
#include "program/operation.h"

static int64_t bucket_of(const nn_attention_config *a, bool both_sides, int64_t distance)
{
    int64_t n = a->relative_buckets, first = 0, back = -distance; /* how far the key lies before the query */
    if (both_sides) {
        n /= 2;
        first = distance > 0 ? n : 0;
        back = distance > 0 ? distance : -distance;
    } else if (back < 0) back = 0;
    int64_t exact = n / 2;
    if (back < exact) return first + back;
    float steps = (float)log((double)((float)back / (float)exact)) /
                  (float)log((double)a->relative_distance / (double)exact); /* rounded where transformers rounds */
    int64_t range = exact + (int64_t)(steps * (float)(n - exact));
    return first + (range < n ? range : n - 1);
}

bool nn_relative_reaches(const nn_attention_config *a, bool both_sides, int64_t tokens)
{
    int64_t exact = (both_sides ? a->relative_buckets / 2 : a->relative_buckets) / 2;
    if (!a->relative_buckets || a->relative_distance > exact || tokens <= exact) return true;
    return a->relative_distance < exact && bucket_of(a, both_sides, 1 - tokens) >= 0;
}

/* What a walk over the bias (B,H,Tq,Tk) does with the number of each head and the row of the table that it comes from. */
typedef struct walk {
    const nn_run *run;
    const nn_step *step;
    nn_bias_size size;
    float *bias;  /* (B,H,Tq,Tk): written, or read for the gradient */
    float *table; /* (buckets,H): read, or added to */
    bool back;
} walk;

static void walk_sequence(const walk *w, int64_t b)
{
    const nn_blocks_config *c = &nn_run_stack(w->run, w->step)->blocks;
    const nn_run_side *side = nn_run_side_of(w->run, w->step);
    int64_t H = c->heads, Tq = w->size.Tq, Tk = w->size.Tk, past = side->from.past ? side->from.past[b] : 0;
    float *to = w->bias + b * H * Tq * Tk;
    for (int64_t i = 0; i < Tq; i++)
        for (int64_t j = 0; j < Tk; j++) {
            float *row = w->table + bucket_of(&c->attention[0], !c->causal, j - i - past) * H;
            for (int64_t h = 0; !w->back && h < H; h++) to[(h * Tq + i) * Tk + j] = row[h];
            for (int64_t h = 0; w->back && h < H; h++) row[h] += to[(h * Tq + i) * Tk + j];
        }
}

static mha_status relative_run(nn_run *r, const nn_step *s)
{
    walk w = {r,    s, nn_run_bias_size(r, s->decoder), nn_run_value(r, s->write[0]).data, s->weight[0]->value.data,
              false};
    for (int64_t b = 0; b < w.size.B; b++) walk_sequence(&w, b);
    return MHA_OK;
}

static mha_status relative_back(nn_run *r, const nn_step *s)
{
    walk w = {r,
              s,
              nn_run_bias_size(r, s->decoder),
              nn_run_gradient(r, s->write[0]).data,
              r->gradients + s->weight[0]->first,
              true};
    for (int64_t b = 0; b < w.size.B; b++) walk_sequence(&w, b);
    return MHA_OK;
}

const nn_operation nn_op_relative = {.name = "relative positions", .run = relative_run, .back = relative_back};
