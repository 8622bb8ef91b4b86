/* The cache: keys and values of a layer, head by head, in one piece of memory that is made once.
 *
 * A call goes through the steps of a pass (pass.h): what it projects is appended, what attention reads are views of the
 * cache. Lengths change last, so a call that fails leaves the cache as it was. */
#include "layer/cache.h"
#include "core/options.h"
#include "layer/tape.h"
#include <string.h>

typedef long long ll;

static const mha_tensor none = MHA_NO_TENSOR;

/* ---- Making one ------------------------------------------------------------------------------------------------- */

/* The struct and its numbers, in memory of the host. */
static size_t lay_numbers(mha_cache *c, char *base)
{
    mha_arena arena = {.base = base};
    int64_t B = c->k.size[0];
    mha_arena_take(&arena, sizeof *c, 1);
    MHA_TAKE(&arena, c->lengths, B);
    MHA_TAKE(&arena, c->after, B);
    MHA_TAKE(&arena, c->readers, B);
    return arena.used;
}

/* Keys and values, in memory of the device. */
static size_t lay_out(mha_cache *c, char *base)
{
    mha_arena arena = {.base = base};
    int64_t B = c->k.size[0], capacity = c->k.size[2], rows;
    if (__builtin_mul_overflow(B * capacity, c->G, &rows)) rows = -1; /* each is below 2^31 */
    mha_tensor k = mha_arena_matrix(&arena, c->k.type, rows, c->D), v = mha_arena_matrix(&arena, c->v.type, rows, c->E);
    c->k = mha_tensor_4d(k.data, c->k.type, B, c->G, capacity, c->D);
    c->v = mha_tensor_4d(v.data, c->v.type, B, c->G, capacity, c->E);
    return arena.too_large ? 0 : arena.used;
}

static mha_status allocate_cache(mha_context *ctx, mha_cache **cache, mha_cache plan)
{
    size_t bytes = lay_out(&plan, NULL);
    if (!bytes) return mha_fail(ctx, MHA_TOO_LARGE, "rows, capacity: such a cache has no place in memory");
    plan.self = (mha_memory){.allocator = ctx->allocator};
    plan.block = mha_device_memory(ctx);
    TRY(mha_memory_reserve(ctx, &plan.self, lay_numbers(&plan, NULL) + MHA_ALIGNMENT));
    mha_status status = mha_memory_reserve(ctx, &plan.block, bytes + MHA_ALIGNMENT);
    if (status) {
        mha_memory_release(&plan.self);
        return status;
    }
    lay_numbers(&plan, plan.self.start);
    lay_out(&plan, plan.block.start);
    memset(plan.lengths, 0, (size_t)plan.k.size[0] * sizeof *plan.lengths);
    *cache = (mha_cache *)plan.self.start;
    **cache = plan;
    return MHA_OK;
}

mha_status mha_cache_create(mha_context *ctx, mha_cache **cache, const mha_layer *layer, int64_t rows, int64_t capacity,
                            mha_type type)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    MHA_NEED(ctx, cache);
    *cache = NULL;
    MHA_NEED(ctx, layer);
    TRY(mha_layer_check_device(ctx, layer));
    if (!mha_is_float(type))
        return mha_fail(ctx, MHA_BAD_TYPE, "type: is %s, must be float32, bfloat16 or float16", mha_type_name(type));
    if (rows < 1 || capacity < 1)
        return mha_fail(ctx, MHA_BAD_SHAPE, "rows, capacity: are %lld and %lld, must be at least 1", (ll)rows,
                        (ll)capacity);
    if (rows > INT32_MAX || capacity > INT32_MAX)
        return mha_fail(ctx, MHA_TOO_LARGE, "rows, capacity: %lld and %lld must be below 2^31", (ll)rows, (ll)capacity);
    const mha_layer_options *s = &layer->shape;
    mha_cache plan = {.backend = ctx->backend, .G = s->kv_heads, .D = s->head_width, .E = s->value_head_width};
    plan.k = plan.v = (mha_tensor){NULL, type, 4, {rows, s->kv_heads, capacity, 0}, {0, 0, 0, 0}};
    return allocate_cache(ctx, cache, plan);
}

void mha_cache_free(mha_cache *cache)
{
    if (!cache) return;
    mha_memory self = cache->self;
    mha_memory_release(&cache->block);
    mha_memory_release(&self);
}

int64_t mha_cache_rows(const mha_cache *cache) { return cache ? cache->k.size[0] : 0; }

int64_t mha_cache_capacity(const mha_cache *cache) { return cache ? cache->k.size[2] : 0; }

int64_t mha_cache_length(const mha_cache *cache, int64_t row)
{
    return cache && row >= 0 && row < cache->k.size[0] ? cache->lengths[row] : -1;
}

/* ---- Append and attend ------------------------------------------------------------------------------------------ */

typedef struct step {
    mha_pass pass;
    mha_cache *cache;
    bool appends, attends;
    mha_tensor starts;       /* (B+1): the rows of x that belong to each row of the cache; none: x is (B,T,*) */
    const char *starts_name; /* in messages */
} step;

/* Rows of one sequence, from position `first` on. */
static mha_tensor stretch(mha_tensor heads, int64_t row, int64_t first, int64_t count)
{
    heads.data = mha_at(heads, row, 0, first, 0);
    heads.size[0] = 1;
    heads.size[2] = count;
    return heads;
}

/* Copies k (B,G,T,D) and v (B,G,T,E) behind what each row holds, so that rows end at `ends`; with starts, k (1,G,sum,D)
 * and v (1,G,sum,E). */
static void put_behind(mha_context *ctx, const mha_cache *c, mha_tensor k, mha_tensor v, mha_tensor starts,
                       mha_tensor ends)
{
    ctx->backend->append(ctx, c->k, k, starts, ends);
    ctx->backend->append(ctx, c->v, v, starts, ends);
}

static mha_status steps(void *arg)
{
    step *s = arg;
    mha_pass *p = &s->pass;
    mha_tensor k = p->k, v = p->v;
    TRY(mha_pass_project(p));
    if (s->appends) put_behind(p->ctx, s->cache, k, v, p->options.query_starts, p->options.key_lengths);
    if (!s->attends) return MHA_OK;
    p->k = s->cache->k;
    p->v = s->cache->v;
    p->k.size[2] = p->v.size[2] = p->Tk;
    mha_status status = mha_pass_attend(p);
    if (!status) status = mha_pass_finish(p);
    p->k = k;
    p->v = v;
    return status;
}

/* Whether the cache lies on the device of the context. */
static mha_status check_device(mha_context *ctx, const mha_cache *cache)
{
    MHA_NEED(ctx, cache);
    if (cache->backend != ctx->backend)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "cache: was made on the device %s, the context is on %s",
                        cache->backend->device, ctx->backend->device);
    return MHA_OK;
}

/* The host counts what rows hold, so it reads the starts, whatever the device. */
static mha_status check_on_host(mha_context *ctx, mha_tensor starts, const char *name)
{
    if (!starts.rank || !ctx->backend->check_memory || ctx->backend->check_memory(ctx, starts, name)) {
        mha_succeed(ctx);
        return MHA_OK;
    }
    return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: lies in memory of %s; a cache reads it in memory of the host", name,
                    ctx->backend->device);
}

static mha_status check(mha_context *ctx, const step *call, const mha_layer *layer, mha_tensor *x, int projection)
{
    const mha_cache *c = call->cache;
    const mha_layer_options *s = &layer->shape;
    if (s->kv_heads != c->G || s->head_width != c->D || s->value_head_width != c->E)
        return mha_fail(ctx, MHA_BAD_SHAPE,
                        "cache: was made for %lld key/value heads of widths %lld and %lld, the layer has %lld of %lld "
                        "and %lld",
                        (ll)c->G, (ll)c->D, (ll)c->E, (ll)s->kv_heads, (ll)s->head_width, (ll)s->value_head_width);
    TRY(mha_pass_check_input(ctx, layer, x, projection));
    const char *name = projection == MHA_Q ? "query" : "key";
    if (call->starts.rank && x->size[0] != 1)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: is packed by %s, so its batch must be 1, not %lld", name,
                        call->starts_name, (ll)x->size[0]);
    if (!call->starts.rank && x->size[0] != mha_cache_rows(c))
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: has a batch of %lld, the cache has %lld rows", name, (ll)x->size[0],
                        (ll)mha_cache_rows(c));
    mha_stretch rows = {.all = x->size[1]};
    return mha_pass_check_starts(ctx, call->starts, mha_cache_rows(c), call->starts_name, &rows);
}

/* The lengths that rows will have, and the longest of them: each gets `all` more, or what the starts give it. */
static mha_status look_ahead(mha_context *ctx, const mha_cache *c, int64_t all, mha_tensor starts, int64_t *longest)
{
    *longest = 0;
    for (int64_t b = 0; b < mha_cache_rows(c); b++) {
        int64_t more = starts.rank ? mha_integer_at(starts, b + 1) - mha_integer_at(starts, b) : all;
        if (more > mha_cache_capacity(c) - c->lengths[b])
            return mha_fail(ctx, MHA_FULL, "cache: row %lld holds %lld of %lld positions; %lld more do not fit", (ll)b,
                            (ll)c->lengths[b], (ll)mha_cache_capacity(c), (ll)more);
        c->after[b] = c->lengths[b] + more;
        if (c->after[b] > *longest) *longest = c->after[b];
    }
    return MHA_OK;
}

static mha_status check_options(mha_context *ctx, mha_attention_options *o)
{
    if (mha_is_given(o->key_lengths)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "key_lengths: the cache knows them");
    if (mha_is_given(o->query_lengths))
        return mha_fail(
            ctx, MHA_BAD_ARGUMENT,
            "query_lengths: all rows of a cache have as many queries; query_starts gives each its own number");
    if (mha_is_given(o->key_starts))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "key_starts: keys are the rows of the cache; query_starts packs x");
    o->align = MHA_ALIGN_BOTTOM_RIGHT;
    o->offsets = (mha_tensor)MHA_NO_TENSOR;
    return MHA_OK;
}

/* Results may not lie in the cache's own memory, which mha_cache_view shows. */
static mha_status check_apart(const mha_pass *p, const mha_cache *c)
{
    const mha_argument all[] = {MHA_PASS_OUTPUTS(p), {"the cache", c->k, MHA_INPUT}, {"the cache", c->v, MHA_INPUT}};
    return MHA_CHECK_APART(p->ctx, all);
}

/* What every call of a cache comes to. x is the query, or the key of a call that only appends. */
static mha_status run_cached(mha_context *ctx, step *s, mha_layer *layer, mha_tensor out,
                             const mha_attention_extras *extras, mha_tensor x, mha_tensor value,
                             const mha_attention_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    mha_cache *c = s->cache;
    TRY(check_device(ctx, c));
    MHA_NEED(ctx, layer);
    int64_t longest;
    mha_attention_options o = mha_layer_attention(layer);
    TRY(mha_options_take(ctx, &o, sizeof o, options, "mha_layer_attention"));
    TRY(check_options(ctx, &o));
    if (s->attends) s->starts = o.query_starts;
    else o.query_starts = s->starts;
    TRY(mha_check_integers(ctx, &s->starts, s->starts_name, mha_cache_rows(c) + 1, "(B+1)"));
    TRY(check_on_host(ctx, s->starts, s->starts_name));
    TRY(check(ctx, s, layer, &x, s->attends ? MHA_Q : MHA_K));
    TRY(look_ahead(ctx, c, s->appends ? x.size[1] : 0, s->appends ? s->starts : none, &longest));
    mha_layer_inputs inputs = {.query = x, .key = x, .value = mha_is_given(value) ? value : x};
    TRY(mha_pass_make_cached(&s->pass, ctx, layer, out, extras, &inputs, &o, s->appends, s->attends, c->after,
                             longest));
    if (s->attends) TRY(check_apart(&s->pass, c));
    int64_t near = mha_layer_near(layer), capacity = mha_cache_capacity(c);
    s->pass.last_place = (capacity < near ? capacity : near) - 1; /* so that no later call allocates */
    TRY(mha_pass_settle(&s->pass, &ctx->room));
    TRY(mha_rehearsed(ctx, steps, s));
    memcpy(c->lengths, c->after, (size_t)mha_cache_rows(c) * sizeof *c->lengths);
    return MHA_OK;
}

mha_status mha_cache_append(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor key, mha_tensor value)
{
    step s = {.cache = cache, .appends = true, .starts_name = "starts"};
    return run_cached(ctx, &s, layer, none, NULL, key, value, NULL);
}

mha_status mha_cache_append_ragged(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor key,
                                   mha_tensor value, mha_tensor starts)
{
    step s = {.cache = cache, .appends = true, .starts = starts, .starts_name = "starts"};
    if (ctx && !mha_is_given(starts))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "starts: is none, must be (B+1); mha_cache_append takes (B,T,*)");
    return run_cached(ctx, &s, layer, none, NULL, key, value, NULL);
}

mha_status mha_cache_attend(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor out,
                            const mha_attention_extras *extras, mha_tensor query, const mha_attention_options *options)
{
    step s = {.cache = cache, .attends = true, .starts_name = "query_starts"};
    return run_cached(ctx, &s, layer, out, extras, query, none, options);
}

mha_status mha_cache_step(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor out,
                          const mha_attention_extras *extras, mha_tensor x, const mha_attention_options *options)
{
    step s = {.cache = cache, .appends = true, .attends = true, .starts_name = "query_starts"};
    return run_cached(ctx, &s, layer, out, extras, x, none, options);
}

/* ---- Import and export ------------------------------------------------------------------------------------------ */

static mha_status check_projected(mha_context *ctx, const mha_cache *c, mha_tensor *t, const char *name, int64_t T,
                                  int64_t width)
{
    const int64_t want[4] = {mha_cache_rows(c), c->G, T, width};
    TRY(mha_check_float(ctx, t, name, 4, *name == 'k' ? "(B,G,T,D)" : "(B,G,T,E)", MHA_INPUT));
    for (int axis = 0; axis < 4; axis++)
        if (t->size[axis] != want[axis])
            return mha_fail(ctx, MHA_BAD_SHAPE, "%s: is (%lld,%lld,%lld,%lld), must be (%lld,%lld,%lld,%lld)", name,
                            (ll)t->size[0], (ll)t->size[1], (ll)t->size[2], (ll)t->size[3], (ll)want[0], (ll)want[1],
                            (ll)want[2], (ll)want[3]);
    return MHA_OK;
}

mha_status mha_cache_append_projected(mha_context *ctx, mha_cache *cache, mha_tensor k, mha_tensor v)
{
    int64_t longest;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    TRY(check_device(ctx, cache));
    TRY(check_projected(ctx, cache, &k, "k", k.size[2], cache->D));
    TRY(check_projected(ctx, cache, &v, "v", k.size[2], cache->E));
    const mha_argument all[] = {
        {"cache", cache->k, MHA_OUTPUT}, {"cache", cache->v, MHA_OUTPUT}, {"k", k, MHA_INPUT}, {"v", v, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    TRY(look_ahead(ctx, cache, k.size[2], none, &longest));
    size_t bytes = (size_t)mha_cache_rows(cache) * sizeof *cache->lengths;
    TRY(mha_memory_reserve(ctx, &ctx->room, bytes + MHA_ALIGNMENT));
    ctx->backend->upload(ctx, ctx->room.start, cache->after, bytes);
    put_behind(ctx, cache, k, v, none, mha_tensor_1d(ctx->room.start, MHA_INT64, mha_cache_rows(cache)));
    memcpy(cache->lengths, cache->after, bytes);
    return mha_call_end(ctx);
}

mha_cache_parts mha_cache_view(const mha_cache *cache, int64_t row)
{
    mha_cache_parts parts = {none, none};
    int64_t longest = 0;
    if (!cache || row < -1 || row >= mha_cache_rows(cache)) return parts;
    for (int64_t b = 0; b < mha_cache_rows(cache); b++)
        if (cache->lengths[b] > longest) longest = cache->lengths[b];
    parts.k = row < 0 ? cache->k : stretch(cache->k, row, 0, cache->lengths[row]);
    parts.v = row < 0 ? cache->v : stretch(cache->v, row, 0, cache->lengths[row]);
    if (row < 0) parts.k.size[2] = parts.v.size[2] = longest;
    return parts;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

mha_status mha_cache_truncate(mha_context *ctx, mha_cache *cache, int64_t row, int64_t length)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    TRY(check_device(ctx, cache));
    int64_t rows = mha_cache_rows(cache);
    if (row < -1 || row >= rows)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "row: %lld is not one of %lld, nor -1 for all", (ll)row, (ll)rows);
    if (length < 0) return mha_fail(ctx, MHA_BAD_ARGUMENT, "length: is %lld, must not be negative", (ll)length);
    for (int64_t b = row < 0 ? 0 : row; b < (row < 0 ? rows : row + 1); b++)
        if (cache->lengths[b] > length) cache->lengths[b] = length;
    return MHA_OK;
}

/* What row `from` holds, to row `to` of another cache of the same shape, or of the same. */
static void copy_row(mha_context *ctx, mha_cache *into, int64_t to, const mha_cache *out_of, int64_t from)
{
    int64_t length = out_of->lengths[from];
    ctx->backend->copy(ctx, stretch(into->k, to, 0, length), stretch(out_of->k, from, 0, length), false);
    ctx->backend->copy(ctx, stretch(into->v, to, 0, length), stretch(out_of->v, from, 0, length), false);
    into->lengths[to] = length;
}

/* A row is overwritten when its contents are no longer needed. Where rows wait for each other in a ring, one of them is set
 * aside first: `aside` is a cache of one row. */
static void move_rows(mha_context *ctx, mha_cache *c, int64_t *from, int64_t *readers, mha_cache *aside)
{
    int64_t B = mha_cache_rows(c);
    for (int64_t start = 0; start < B; start++) {
        int64_t b = start;
        while (from[b] != b && readers[b] == 0) { /* follow the chain of rows that this sets free */
            int64_t source = from[b];
            copy_row(ctx, c, b, c, source);
            from[b] = b;
            readers[source]--;
            b = source;
        }
    }
    for (int64_t start = 0; start < B; start++) { /* only rings are left */
        int64_t b = start;
        if (from[start] == start) continue;
        copy_row(ctx, aside, 0, c, start);
        while (from[b] != start) {
            int64_t source = from[b];
            copy_row(ctx, c, b, c, source);
            from[b] = b;
            b = source;
        }
        copy_row(ctx, c, b, aside, 0);
        from[b] = b;
    }
}

mha_status mha_cache_reorder(mha_context *ctx, mha_cache *cache, const int64_t *from)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    TRY(check_device(ctx, cache));
    MHA_NEED(ctx, from);
    int64_t B = mha_cache_rows(cache), *pending = cache->after, *readers = cache->readers;
    for (int64_t b = 0; b < B; b++)
        if (from[b] < 0 || from[b] >= B)
            return mha_fail(ctx, MHA_BAD_ARGUMENT, "from: [%lld] is %lld, not one of %lld rows", (ll)b, (ll)from[b],
                            (ll)B);
    mha_cache aside = *cache;
    int64_t length_aside = 0;
    aside.k.size[0] = aside.v.size[0] = 1;
    aside.lengths = &length_aside;
    size_t bytes = lay_out(&aside, NULL); /* less than what the cache itself has */
    TRY(mha_memory_reserve(ctx, &ctx->room, bytes + MHA_ALIGNMENT));
    lay_out(&aside, ctx->room.start);
    memset(readers, 0, (size_t)B * sizeof *readers);
    for (int64_t b = 0; b < B; b++) {
        pending[b] = from[b];
        if (from[b] != b) readers[from[b]]++;
    }
    move_rows(ctx, cache, pending, readers, &aside);
    return mha_call_end(ctx);
}

mha_status mha_cache_fork(mha_context *ctx, mha_cache **copy, const mha_cache *cache)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    MHA_NEED(ctx, copy);
    *copy = NULL;
    TRY(check_device(ctx, cache));
    mha_status status = allocate_cache(ctx, copy, *cache);
    for (int64_t b = 0; *copy && b < mha_cache_rows(cache); b++) copy_row(ctx, *copy, b, cache, b);
    return status ? status : mha_call_end(ctx);
}
