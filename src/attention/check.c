/* The public edge of attention: every rule about its arguments, each with the sentence that a caller reads. Past this
 * file nothing is checked again; the device of the context does the rest. */
#include "attention/problem.h"
#include "core/options.h"

typedef mha_status status;

typedef long long ll;

static status check_size(mha_problem *p, mha_tensor t, const char *name, int axis, int64_t want, const char *why)
{
    if (t.size[axis] != want)
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld (%s)", name, axis, (ll)t.size[axis],
                        (ll)want, why);
    return MHA_OK;
}

mha_status mha_check_integers(mha_context *ctx, mha_tensor *t, const char *name, int64_t count, const char *shape)
{
    if (!mha_is_given(*t)) return MHA_OK;
    TRY(mha_check_tensor(ctx, t, name, 1, shape, MHA_INPUT));
    if (!mha_is_integer(t->type))
        return mha_fail(ctx, MHA_BAD_TYPE, "%s: is %s, must be int32 or int64", name, mha_type_name(t->type));
    if (count >= 0 && t->size[0] != count)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: has %lld numbers, must have %lld of %s", name, (ll)t->size[0],
                        (ll)count, shape);
    if (count < 0 && t->size[0] < 1)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: is empty, must have one number more than there are sequences", name);
    return MHA_OK;
}

/* Whether the host cannot read tensors. Then the code that reads numbers in them keeps these within their limits. */
static bool is_remote(const mha_problem *p) { return p->ctx->backend->remote; }

/* Starts of ragged sequences: from 0 or more, never falling, inside `rows`. Gives the longest sequence, or all rows where
 * it is not known. */
static status check_starts(mha_problem *p, mha_tensor starts, const char *name, int64_t rows, int64_t *longest)
{
    *longest = rows;
    if (is_remote(p)) return MHA_OK;
    int64_t before = mha_integer_at(starts, 0);
    *longest = 0;
    if (before < 0)
        return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "%s: [0] is %lld, must not be negative", name, (ll)before);
    for (int64_t b = 0; b < p->B; b++) {
        int64_t next = mha_integer_at(starts, b + 1);
        if (next < before)
            return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "%s: [%lld] is %lld, less than the %lld before it", name,
                            (ll)b + 1, (ll)next, (ll)before);
        if (next > rows)
            return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "%s: [%lld] is %lld, but the tensor has %lld rows", name,
                            (ll)b + 1, (ll)next, (ll)rows);
        if (next - before > *longest) *longest = next - before;
        before = next;
    }
    return MHA_OK;
}

/* B, Tq and Tk, which ragged sequences take from their starts. */
static status check_batch(mha_problem *p)
{
    mha_attention_options *o = &p->options;
    TRY(mha_check_integers(p->ctx, &o->query_starts, "query_starts", -1, "(B+1)"));
    TRY(mha_check_integers(p->ctx, &o->key_starts, "key_starts", -1, "(B+1)"));
    bool queries = o->query_starts.rank, keys = o->key_starts.rank;
    p->B = queries ? o->query_starts.size[0] - 1 : keys ? o->key_starts.size[0] - 1 : p->q.size[0];
    p->Tq = p->q.size[2];
    p->Tk = p->k.size[2];
    if (queries && keys) TRY(check_size(p, o->key_starts, "key_starts", 0, p->B + 1, "as query_starts"));
    TRY(check_size(p, p->q, "q", 0, queries ? 1 : p->B, queries ? "packed by query_starts" : "B"));
    TRY(check_size(p, p->k, "k", 0, keys ? 1 : p->B, keys ? "packed by key_starts" : "B"));
    if (queries) TRY(check_starts(p, o->query_starts, "query_starts", p->q.size[2], &p->Tq));
    if (keys) TRY(check_starts(p, o->key_starts, "key_starts", p->k.size[2], &p->Tk));
    return MHA_OK;
}

static status check_inputs(mha_problem *p)
{
    mha_role role = p->output_role == MHA_SHAPE ? MHA_SHAPE : MHA_INPUT;
    TRY(mha_check_float(p->ctx, &p->q, "q", 4, "(B,H,Tq,D)", role));
    TRY(mha_check_float(p->ctx, &p->k, "k", 4, "(B,G,Tk,D)", role));
    TRY(mha_check_float(p->ctx, &p->v, "v", 4, "(B,G,Tk,E)", role));
    TRY(mha_check_float(p->ctx, &p->out, "out", 4, "(B,H,Tq,E)", p->output_role));
    p->H = p->q.size[1];
    p->G = p->k.size[1];
    p->D = p->q.size[3];
    p->E = p->v.size[3];
    if (p->D < 1) return mha_fail(p->ctx, MHA_BAD_SHAPE, "q: axis 3 is 0, D must be at least 1");
    if (p->E < 1) return mha_fail(p->ctx, MHA_BAD_SHAPE, "v: axis 3 is 0, E must be at least 1");
    if (p->G ? p->H % p->G : p->H)
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "k: has %lld heads, which do not divide the %lld of q", (ll)p->G,
                        (ll)p->H);
    p->share = p->G ? p->H / p->G : 1;
    TRY(check_batch(p));
    TRY(check_size(p, p->k, "k", 3, p->D, "D of q"));
    TRY(check_size(p, p->v, "v", 0, p->k.size[0], "batch of k"));
    TRY(check_size(p, p->v, "v", 1, p->G, "heads of k"));
    TRY(check_size(p, p->v, "v", 2, p->k.size[2], "keys of k"));
    for (int axis = 0; axis < 3; axis++) TRY(check_size(p, p->out, "out", axis, p->q.size[axis], "as q"));
    return check_size(p, p->out, "out", 3, p->E, "E of v");
}

static status check_numbers(mha_problem *p)
{
    mha_attention_options *o = &p->options;
    if (isnan(o->scale)) o->scale = (float)(1.0 / sqrt((double)p->D));
    if (isinf(o->scale)) return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "scale: must be finite, or NAN for 1/sqrt(D)");
    if (!(o->softcap >= 0) || isinf(o->softcap))
        return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "softcap: must be 0 or a positive number");
    if (!(o->dropout >= 0 && o->dropout <= 1))
        return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "dropout: must be from 0 to 1");
    if (o->dropout > 0 && (p->Tq > UINT32_MAX || p->H > UINT32_MAX || p->Tk / 4 > UINT32_MAX))
        return mha_fail(p->ctx, MHA_TOO_LARGE, "dropout: its generator counts H and Tq to 2^32 and Tk to 2^34");
    if (o->window_left < MHA_UNLIMITED || o->window_right < MHA_UNLIMITED)
        return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "%s: must be MHA_UNLIMITED or not negative",
                        o->window_left < MHA_UNLIMITED ? "window_left" : "window_right");
    /* A window beyond every position is the same as none, and sums with it stay small. */
    if (o->window_left > 4 * MHA_SIZE_LIMIT) o->window_left = MHA_UNLIMITED;
    if (o->window_right > 4 * MHA_SIZE_LIMIT) o->window_right = MHA_UNLIMITED;
    return MHA_OK;
}

/* Lengths of sequences, which have `rows` rows each, or those between their starts. */
static status check_each_length(mha_problem *p, mha_tensor *lengths, const char *name, mha_tensor starts, int64_t rows)
{
    TRY(mha_check_integers(p->ctx, lengths, name, p->B, "(B)"));
    for (int64_t b = 0; lengths->rank && !is_remote(p) && b < p->B; b++) {
        int64_t length = mha_integer_at(*lengths, b);
        if (starts.rank) rows = mha_integer_at(starts, b + 1) - mha_integer_at(starts, b);
        if (length < 0 || length > rows)
            return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "%s: [%lld] is %lld, must be from 0 to %lld", name, (ll)b,
                            (ll)length, (ll)rows);
    }
    return MHA_OK;
}

/* The arrays with one number a sequence. */
static status check_lengths(mha_problem *p)
{
    mha_attention_options *o = &p->options;
    TRY(mha_check_integers(p->ctx, &o->offsets, "offsets", p->B, "(B)"));
    if ((unsigned)o->align > MHA_ALIGN_OFFSET)
        return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "align: %d is not an alignment", (int)o->align);
    if (!o->offsets.rank != (o->align != MHA_ALIGN_OFFSET))
        return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "offsets: must be given with MHA_ALIGN_OFFSET and only with it");
    TRY(check_each_length(p, &o->query_lengths, "query_lengths", o->query_starts, p->Tq));
    TRY(check_each_length(p, &o->key_lengths, "key_lengths", o->key_starts, p->Tk));
    for (int64_t b = 0; o->offsets.rank && !is_remote(p) && b < p->B; b++) {
        int64_t offset = mha_integer_at(o->offsets, b);
        if (offset < -MHA_SIZE_LIMIT || offset > MHA_SIZE_LIMIT)
            return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "offsets: [%lld] is %lld, must be within +-2^40", (ll)b,
                            (ll)offset);
    }
    return MHA_OK;
}

/* An input that broadcasts to (B,H,Tq,Tk): axes of the full size or 1. Ragged sequences need at least the longest. */
static status check_broadcast(mha_problem *p, mha_tensor *t, const char *name)
{
    if (!mha_is_given(*t)) return MHA_OK;
    mha_role role = p->output_role == MHA_SHAPE ? MHA_SHAPE : MHA_INPUT;
    if (t->rank < 1 || t->rank > 4)
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "%s: has rank %d, must have 1 to 4", name, t->rank);
    TRY(mha_check_tensor(p->ctx, t, name, t->rank, "", role));
    mha_tensor wide = mha_broadcast(*t);
    const int64_t full[4] = {p->B, p->H, p->Tq, p->Tk};
    const bool longer[4] = {false, false, p->options.query_starts.rank > 0, p->options.key_starts.rank > 0};
    for (int axis = 0; axis < 4; axis++) {
        if (wide.size[axis] == 1 || wide.size[axis] == full[axis]) continue;
        if (longer[axis] && (is_remote(p) || wide.size[axis] > full[axis])) continue;
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "%s: its axis of %s is %lld, must be %s%lld%s", name,
                        (const char *const[]){"B", "H", "Tq", "Tk"}[axis], (ll)wide.size[axis],
                        longer[axis] ? "at least " : "", (ll)full[axis], full[axis] == 1 ? "" : " or 1");
    }
    *t = wide;
    return MHA_OK;
}

/* One float32 a head: (H), or (B,H) where `batched`. Becomes (B,H,1,1). */
static status check_per_head(mha_problem *p, mha_tensor *t, const char *name, bool batched)
{
    if (!mha_is_given(*t)) return MHA_OK;
    mha_role role = p->output_role == MHA_SHAPE ? MHA_SHAPE : MHA_INPUT;
    int rank = batched && t->rank == 2 ? 2 : 1;
    TRY(mha_check_tensor(p->ctx, t, name, rank, batched ? "(H) or 2 (B,H)" : "(H)", role));
    if (t->type != MHA_FLOAT32)
        return mha_fail(p->ctx, MHA_BAD_TYPE, "%s: is %s, must be float32", name, mha_type_name(t->type));
    TRY(check_size(p, *t, name, rank - 1, p->H, "H"));
    if (rank == 2) TRY(check_size(p, *t, name, 0, p->B, "B"));
    *t = (mha_tensor){t->data,
                      t->type,
                      4,
                      {rank == 2 ? p->B : 1, p->H, 1, 1},
                      {rank == 2 ? t->stride[0] : 0, t->stride[rank - 1], 0, 0}};
    return MHA_OK;
}

static status check_modifiers(mha_problem *p)
{
    mha_attention_options *o = &p->options;
    TRY(check_broadcast(p, &o->mask, "mask"));
    if (mha_is_given(o->mask) && o->mask.type != MHA_BOOL)
        return mha_fail(p->ctx, MHA_BAD_TYPE, "mask: is %s, must be bool; numbers that are added go into bias",
                        mha_type_name(o->mask.type));
    TRY(check_broadcast(p, &o->bias, "bias"));
    if (mha_is_given(o->bias) && !mha_is_float(o->bias.type))
        return mha_fail(p->ctx, MHA_BAD_TYPE, "bias: is %s, must be float32, bfloat16 or float16",
                        mha_type_name(o->bias.type));
    TRY(check_per_head(p, &o->alibi_slopes, "alibi_slopes", true));
    return check_per_head(p, &o->sinks, "sinks", false);
}

/* One map of Tq x Tk numbers a head, or in all. Axes that follow ragged sequences may be longer than they need. */
static status check_map(mha_problem *p, mha_tensor *t, const char *name, bool averaged)
{
    int rank = averaged ? 3 : 4;
    TRY(mha_check_tensor(p->ctx, t, name, rank, averaged ? "(B,Tq,Tk)" : "(B,H,Tq,Tk)", p->output_role));
    if (!mha_is_float(t->type))
        return mha_fail(p->ctx, MHA_BAD_TYPE, "%s: is %s, must be float32, bfloat16 or float16", name,
                        mha_type_name(t->type));
    TRY(check_size(p, *t, name, 0, p->B, "B"));
    if (!averaged) TRY(check_size(p, *t, name, 1, p->H, "H"));
    bool longer_queries = p->options.query_starts.rank && (is_remote(p) || t->size[rank - 2] >= p->Tq);
    bool longer_keys = p->options.key_starts.rank && (is_remote(p) || t->size[rank - 1] >= p->Tk);
    if (!longer_queries) TRY(check_size(p, *t, name, rank - 2, p->Tq, "Tq"));
    if (!longer_keys) TRY(check_size(p, *t, name, rank - 1, p->Tk, "Tk"));
    return MHA_OK;
}

/* What only a layer has between its products. */
static status refuse_intermediates(const mha_problem *p)
{
    const mha_attention_extras *x = &p->extras;
    const struct {
        const char *name;
        mha_tensor tensor;
    } all[] = {{"q", x->q}, {"k", x->k}, {"v", x->v}, {"heads", x->heads}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (mha_is_given(all[n].tensor))
            return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "extras.%s: only a layer's call can give it", all[n].name);
    return MHA_OK;
}

static status check_extras(mha_problem *p)
{
    mha_attention_extras *x = &p->extras;
    TRY(refuse_intermediates(p));
    if (mha_is_given(x->lse)) {
        TRY(mha_check_tensor(p->ctx, &x->lse, "lse", 3, "(B,H,Tq)", p->output_role));
        if (x->lse.type != MHA_FLOAT32)
            return mha_fail(p->ctx, MHA_BAD_TYPE, "lse: is %s, must be float32", mha_type_name(x->lse.type));
        for (int axis = 0; axis < 3; axis++) TRY(check_size(p, x->lse, "lse", axis, p->q.size[axis], "as q"));
    }
    if (mha_is_given(x->softmax)) {
        TRY(mha_check_tensor(p->ctx, &x->softmax, "softmax", 4, "(B,H,Tq,2)", p->output_role));
        if (x->softmax.type != MHA_FLOAT32)
            return mha_fail(p->ctx, MHA_BAD_TYPE, "softmax: is %s, must be float32", mha_type_name(x->softmax.type));
        for (int axis = 0; axis < 3; axis++) TRY(check_size(p, x->softmax, "softmax", axis, p->q.size[axis], "as q"));
        TRY(check_size(p, x->softmax, "softmax", 3, 2, "a maximum and a sum"));
    }
    if (mha_is_given(x->weights)) TRY(check_map(p, &x->weights, "weights", x->weights.rank == 3));
    if (mha_is_given(x->scores)) TRY(check_map(p, &x->scores, "scores", false));
    if ((unsigned)x->scores_stage > MHA_STAGE_DROPPED)
        return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "scores_stage: %d is not a stage", (int)x->scores_stage);
    return MHA_OK;
}

/* No output may share memory with an input or another output, except that `out` may be `q`. */
static status check_overlap(mha_problem *p)
{
    bool in_place = mha_same_view(p->out, p->q);
    if (in_place && mha_element_count(p->q) && (mha_is_given(p->extras.weights) || mha_is_given(p->extras.scores)))
        return mha_fail(p->ctx, MHA_OVERLAP, "out: shares memory with q, which weights and scores need to be kept");
    const mha_argument all[] = {{"out", p->out, MHA_OUTPUT},
                                {"lse", p->extras.lse, MHA_OUTPUT},
                                {"softmax", p->extras.softmax, MHA_OUTPUT},
                                {"weights", p->extras.weights, MHA_OUTPUT},
                                {"scores", p->extras.scores, MHA_OUTPUT},
                                {"q", in_place ? (mha_tensor)MHA_NO_TENSOR : p->q, MHA_INPUT},
                                {"k", p->k, MHA_INPUT},
                                {"v", p->v, MHA_INPUT},
                                MHA_OPTION_INPUTS(&p->options)};
    return MHA_CHECK_APART(p->ctx, all);
}

mha_status mha_problem_make(mha_problem *p, mha_context *ctx, mha_role role, mha_tensor out,
                            const mha_attention_extras *extras, mha_tensor q, mha_tensor k, mha_tensor v,
                            const mha_attention_options *options)
{
    static const mha_attention_extras none = MHA_ATTENTION_NO_EXTRAS;
    *p = (mha_problem){.ctx = ctx,
                       .out = out,
                       .q = q,
                       .k = k,
                       .v = v,
                       .extras = extras ? *extras : none,
                       .options = MHA_ATTENTION_DEFAULTS,
                       .output_role = role};
    mha_succeed(ctx);
    TRY(mha_options_take(ctx, &p->options, sizeof p->options, options, "MHA_ATTENTION_DEFAULTS"));
    p->kept = p->options.dropout < 1 ? 1.0f / (1.0f - p->options.dropout) : 0.0f;
    TRY(check_inputs(p));
    TRY(check_numbers(p));
    TRY(check_lengths(p));
    TRY(check_modifiers(p));
    TRY(check_extras(p));
    return role == MHA_OUTPUT ? check_overlap(p) : MHA_OK;
}

mha_status mha_attention_forward(mha_context *ctx, mha_tensor out, const mha_attention_extras *extras, mha_tensor q,
                                 mha_tensor k, mha_tensor v, const mha_attention_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_problem problem;
    TRY(mha_problem_make(&problem, ctx, MHA_OUTPUT, out, extras, q, k, v, options));
    return ctx->backend->attention_forward(&problem);
}

mha_status mha_attention_explain(mha_context *ctx, mha_attention_plan *plan, mha_tensor out,
                                 const mha_attention_extras *extras, mha_tensor q, mha_tensor k, mha_tensor v,
                                 const mha_attention_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    if (!plan) return mha_fail(ctx, MHA_BAD_ARGUMENT, "plan: is NULL");
    mha_problem problem;
    TRY(mha_problem_make(&problem, ctx, MHA_SHAPE, out, extras, q, k, v, options));
    return ctx->backend->attention_explain(&problem, plan);
}
