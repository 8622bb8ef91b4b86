/* The geometry of a checked problem: sequences, positions, ranges. */
#include "attention/problem.h"

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

mha_sequence mha_sequence_get(const mha_problem *p, int64_t b)
{
    const mha_attention_options *o = &p->options;
    mha_sequence s = {.b = b, .padded = p->Tq, .keys = p->Tk, .query_batch = b, .key_batch = b};
    if (o->query_starts.rank) {
        s.query_batch = 0;
        s.query_row = mha_integer_at(o->query_starts, b);
        s.padded = mha_integer_at(o->query_starts, b + 1) - s.query_row;
    }
    if (o->key_starts.rank) {
        s.key_batch = 0;
        s.key_row = mha_integer_at(o->key_starts, b);
        s.keys = mha_integer_at(o->key_starts, b + 1) - s.key_row;
    }
    s.queries = o->query_lengths.rank ? mha_integer_at(o->query_lengths, b) : s.padded;
    s.length = o->key_lengths.rank ? mha_integer_at(o->key_lengths, b) : s.keys;
    s.offset = o->align == MHA_ALIGN_OFFSET         ? mha_integer_at(o->offsets, b)
               : o->align == MHA_ALIGN_BOTTOM_RIGHT ? s.length - s.queries
                                                    : 0;
    return s;
}

int64_t mha_problem_longest(const mha_problem *p)
{
    mha_tensor lengths = p->options.query_lengths;
    int64_t most = lengths.rank ? 0 : p->Tq;
    for (int64_t b = 0; lengths.rank && b < p->B; b++)
        if (mha_integer_at(lengths, b) > most) most = mha_integer_at(lengths, b);
    return most;
}

mha_range mha_visible_keys(const mha_problem *p, const mha_sequence *s, int64_t i)
{
    const mha_attention_options *o = &p->options;
    int64_t position = i + s->offset;
    mha_range r = {0, s->length};
    if (o->causal) r.high = clamp(position + 1, 0, r.high);
    if (o->window_right != MHA_UNLIMITED) r.high = clamp(position + o->window_right + 1, 0, r.high);
    if (o->window_left != MHA_UNLIMITED) r.low = clamp(position - o->window_left, 0, r.high);
    return r;
}
