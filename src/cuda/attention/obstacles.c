#include "cuda/attention/obstacles.h"
#include "cuda/general.h"

bool mha_cuda_has_bias_tiles(mha_tensor bias)
{
    enum { STEP = 16 };
    const int64_t each = (int64_t)mha_type_size(bias.type), most = INT64_C(1) << 40;
    bool good = bias.rank && mha_element_count(bias) && bias.size[2] > 1 && bias.size[3] > 1 && bias.stride[3] == 1 &&
                (uintptr_t)bias.data % STEP == 0;
    for (int axis = 0; axis < 3; axis++) {
        int64_t bytes = bias.stride[axis] * each;
        good = good && (bias.size[axis] == 1 || (bytes > 0 && bytes % STEP == 0 && bytes < most));
    }
    return good;
}

/* One reason against a call. */
typedef struct obstacle {
    bool there;
    const char *what;
} obstacle;

static const char *first_of(const obstacle *all, size_t count)
{
    for (size_t n = 0; n < count; n++)
        if (all[n].there) return all[n].what;
    return NULL;
}

bool mha_cuda_has_options(const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    return o->alibi_slopes.rank || o->sinks.rank || o->softcap > 0;
}

bool mha_cuda_has_window(const mha_attention_options *o)
{
    return o->causal || o->window_left != MHA_UNLIMITED || o->window_right != MHA_UNLIMITED;
}

bool mha_cuda_has_spans(const mha_problem *p)
{
    return !mha_sequences_are_alike(&p->options) || p->options.align == MHA_ALIGN_OFFSET;
}

bool mha_cuda_has_maps(const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    return o->mask.rank || o->bias.rank || o->dropout > 0;
}

bool mha_cuda_is_plain(const mha_problem *p) { return !mha_cuda_has_options(p) && !mha_cuda_has_maps(p); }

bool mha_cuda_has_bias_alone(const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    return mha_cuda_has_bias_tiles(o->bias) && o->bias.type == p->q.type && !o->mask.rank && !(o->dropout > 0) &&
           !(o->softcap > 0) && !o->alibi_slopes.rank;
}

static const char *options_obstacle(const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    const obstacle all[] = {{p->extras.weights.rank > 0, "weights"},
                            {p->extras.scores.rank > 0, "scores"},
                            {!(o->scale > 0 && o->scale < 1e30f), "a scale that is not above 0 and below 1e30"}};
    return first_of(all, sizeof all / sizeof *all);
}

static const char *options_obstacle_backward(const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    bool options = mha_cuda_has_options(p) || mha_cuda_has_spans(p) || mha_cuda_has_maps(p);
    const obstacle all[] = {
        {p->extras.weights.rank > 0, "weights"},
        {p->extras.scores.rank > 0, "scores"},
        {!(o->scale > 0 && o->scale < 1e30f), "a scale that is not above 0 and below 1e30"},
        {options && p->q.data && mha_same_view(p->out, p->q), "results in place of q, with options"}};
    return first_of(all, sizeof all / sizeof *all);
}

/* The copy engine takes rows of 16-bit numbers, in steps of 16 bytes. */
const char *mha_cuda_view_obstacle(const mha_problem *p, mha_tensor t)
{
    enum { STEP = 8 }; /* elements of 16 bytes */
    const int64_t most = (INT64_C(1) << 40) / 2;
    if (!t.rank) return NULL;
    if (t.type == MHA_FLOAT32) return "float32";
    if (t.type != p->q.type) return "types that are not alike";
    if (!mha_element_count(t)) return NULL;
    bool strides = t.stride[3] != 1;
    for (int axis = 0; axis < 3; axis++)
        strides =
            strides || (t.size[axis] > 1 && (t.stride[axis] <= 0 || t.stride[axis] % STEP || t.stride[axis] >= most));
    if (strides) return "strides that the copy engine cannot take";
    return (uintptr_t)t.data % 16 ? "an address that is not a multiple of 16 bytes" : NULL;
}

/* The tensors that both directions read and write. */
static const char *views_obstacle(const mha_problem *p)
{
    const mha_tensor all[] = {p->q, p->k, p->v, p->out};
    const char *why = NULL;
    for (size_t n = 0; n < sizeof all / sizeof *all && !why; n++) why = mha_cuda_view_obstacle(p, all[n]);
    return why;
}

/* The copy engine fills rows with zeros up to the width of a kernel. */
static bool can_fill(int64_t width, int64_t most) { return width > 0 && width <= most && width % 8 == 0; }

static const char *widths_obstacle(const mha_problem *p)
{
    return can_fill(p->D, 256) && can_fill(p->E, 256) ? NULL : "widths that are not multiples of 8 up to 256";
}

/* Copies of 16 bytes take rows whose numbers lie side by side. */
const char *mha_cuda_piece_obstacle(const mha_problem *p, mha_tensor t)
{
    enum { STEP = 4 }; /* elements of 16 bytes */
    bool strides = t.stride[3] != 1;
    if (!t.rank) return NULL;
    if (t.type != p->q.type) return "types that are not alike";
    if (!mha_element_count(t)) return NULL;
    for (int axis = 0; axis < 3; axis++) strides = strides || (t.size[axis] > 1 && t.stride[axis] % STEP);
    if (strides) return "strides that are not multiples of 16 bytes";
    return (uintptr_t)t.data % 16 ? "an address that is not a multiple of 16 bytes" : NULL;
}

/* `all` are the tensors of a call whose rows are copied. */
static const char *float32_obstacle(const mha_problem *p, const mha_tensor *all, size_t count)
{
    enum { MOST = 128, STEP = 4 };
    const mha_attention_options *o = &p->options;
    const int64_t least = p->D < p->E ? p->D : p->E, widest = p->D < p->E ? p->E : p->D;
    const obstacle others[] = {{p->q.type != MHA_FLOAT32, "types other than float32"},
                               {least < 1 || widest > MOST || p->D % STEP || p->E % STEP,
                                "float32 widths that are not multiples of 4 up to 128"},
                               {o->softcap > 0 || o->alibi_slopes.rank, "float32 with a softcap or slopes"},
                               {mha_cuda_has_maps(p), "float32 with a mask, a bias or dropout"}};
    const char *why = first_of(others, sizeof others / sizeof *others);
    for (size_t n = 0; n < count && !why; n++) why = mha_cuda_piece_obstacle(p, all[n]);
    return why ? why : options_obstacle(p);
}

const char *mha_cuda_float32_obstacle(const mha_problem *p)
{
    const mha_tensor all[] = {p->q, p->k, p->v, p->out};
    return p->out.rank ? float32_obstacle(p, all, sizeof all / sizeof *all) : "no results";
}

const char *mha_cuda_float32_obstacle_backward(const mha_gradient_call *call)
{
    const mha_problem *p = &call->problem;
    const mha_tensor all[] = {p->q, p->k, p->v, call->dout};
    return float32_obstacle(p, all, sizeof all / sizeof *all);
}

const char *mha_cuda_obstacle(const mha_problem *p)
{
    const char *why = views_obstacle(p);
    if (!why) why = widths_obstacle(p);
    return why ? why : options_obstacle(p);
}

bool mha_cuda_is_for_tiles(const mha_problem *p)
{
    const mha_tensor all[] = {p->q, p->k, p->v, p->out};
    bool types = p->q.type != MHA_FLOAT32;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) types = types && (!all[n].rank || all[n].type == p->q.type);
    return types && !widths_obstacle(p) && !options_obstacle(p);
}

const char *mha_cuda_obstacle_backward(const mha_gradient_call *call)
{
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *g = &call->gradients;
    const mha_tensor all[] = {call->dout, g->q, g->k, g->v};
    const obstacle others[] = {{g->alibi_slopes.rank > 0, "gradients.alibi_slopes"},
                               {g->sinks.rank > 0, "gradients.sinks"},
                               {call->dlse.rank > 0, "dlse"},
                               {g->importance.rank > 0, "importance"},
                               {call->others, "keys that a layer adds"}};
    const char *why = views_obstacle(p);
    if (!why) why = widths_obstacle(p);
    if (!why) why = options_obstacle_backward(p);
    if (!why && !p->extras.softmax.rank) why = mha_cuda_obstacle(p); /* of the other forward pass */
    for (size_t n = 0; n < sizeof all / sizeof *all && !why; n++) why = mha_cuda_view_obstacle(p, all[n]);
    return why ? why : first_of(others, sizeof others / sizeof *others);
}

const char *mha_cuda_decode_obstacle(const mha_problem *p)
{
    const mha_tensor all[] = {p->k, p->v};
    const char *why = NULL;
    for (size_t n = 0; n < sizeof all / sizeof *all && !why; n++) why = mha_cuda_view_obstacle(p, all[n]);
    if (!why) why = options_obstacle(p);
    const obstacle others[] = {
        {p->q.type == MHA_FLOAT32, "float32"},
        {p->out.rank && p->out.type != p->q.type, "types that are not alike"},
        {!can_fill(p->D, 256) || !can_fill(p->E, 256), "widths that are not multiples of 8 up to 256"},
        {p->options.dropout > 0, "dropout"},
        {!mha_element_count(p->q) || !mha_element_count(p->k), "no rows or no keys"}};
    return why ? why : first_of(others, sizeof others / sizeof *others);
}

const char *mha_cuda_stats_obstacle(const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    const mha_tensor all[] = {p->q, p->k};
    const char *why = NULL;
    for (size_t n = 0; n < sizeof all / sizeof *all && !why; n++) why = mha_cuda_view_obstacle(p, all[n]);
    const obstacle others[] = {{o->mask.rank > 0, "mask"},
                               {o->bias.rank > 0, "bias"},
                               {o->softcap > 0, "softcap"},
                               {o->alibi_slopes.rank > 0, "slopes"},
                               {p->D != 64 && p->D != 128, "a width that is neither 64 nor 128"},
                               {!(o->scale > 0 && o->scale < 1e30f), "a scale that is not above 0 and below 1e30"},
                               {!mha_element_count(p->q) || !mha_element_count(p->k), "no rows or no keys"}};
    return why ? why : first_of(others, sizeof others / sizeof *others);
}
