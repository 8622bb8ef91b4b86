/* mha layer, from file to file: output, weights and gradients against the float64 oracle, for every kind of mask and
 * input; and every bad input, which is one line and leaves the output file alone. */
#include "cli/command.h"
#include "layer.h"
#include "layer/file.h"

#include <sys/stat.h>

enum { H = 2, D = 3, M = H * D, TQ = 3, TK = 4, MASK_MOST = 2 * H * TQ * TK };

__attribute__((constructor)) static void go_there(void) /* so that paths in messages are plain names */
{
    if (chdir(command_folder)) exit(1);
}

static mha_context *context(void)
{
    static mha_context *ctx;
    if (!ctx && mha_context_create(&ctx, NULL)) abort();
    return ctx;
}

__attribute__((destructor)) static void free_context(void) { mha_context_free(context()); }

/* Numbers between -1 and 1 that repeat late. */
static float number(int stream, int64_t i) { return (float)((i * 37 + stream * 11) % 251) / 125 - 1; }

static const said *run(const char *settings, const char *args)
{
    char line[600];
    const char *device = getenv("MHA_BACKEND"); /* cuda: on a GPU */
    snprintf(line, sizeof line, "layer %s%s%s", args, device ? " --device " : "", device ? device : "");
    return command(settings, line);
}

/* ---- A problem --------------------------------------------------------------------------------------------------- */

typedef enum mask_kind { NO_MASK, BOOL_MASK, FLOAT_MASK, BOOL_MASK_PER_HEAD, FLOAT_MASK_PER_HEAD } mask_kind;

typedef struct problem {
    mask_kind attn, padding;
    bool batched, causal, extra_keys, grad, intermediates;
    int inputs;  /* tensors of their own: query; and key; and value */
    int weights; /* none, per head, average */
    int family;  /* of nn_layer_family_of_bare; 0: the one it is saved with */
    const char *prefix;
    int64_t B, Tk;
} problem;

/* What a mask says: hidden, or a number to be added, -infinity among them. Row 1 of the common bool mask sees nothing.
 * */
static float attn_says(const problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    switch (p->attn) {
    case BOOL_MASK:
        return i == 1 || (i + j) % 3 == 0 ? -INFINITY : 0;
    case FLOAT_MASK:
        return i == 2 && j == 1 ? -INFINITY : number(1, i * 5 + j);
    case BOOL_MASK_PER_HEAD:
        return (b + 2 * h + i + j) % 3 == 0 ? -INFINITY : 0;
    case FLOAT_MASK_PER_HEAD:
        return h == 1 && j == 0 ? -INFINITY : number(2, ((b * H + h) * 7 + i) * 5 + j);
    default:
        return 0;
    }
}

static float padding_says(const problem *p, int64_t b, int64_t j)
{
    if (p->padding == BOOL_MASK) return j == p->Tk - 1 - b ? -INFINITY : 0;
    return p->padding == FLOAT_MASK ? (b == 0 && j == 2 ? -INFINITY : number(3, b * 7 + j)) : 0;
}

static mha_layer *make_layer(const problem *p)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    mha_layer *layer = NULL;
    int64_t count = 0;
    o.width = M, o.heads = H, o.bias_kv = o.zero_kv = p->extra_keys, o.dropout = 0.5f; /* which must be off */
    expect(!mha_layer_parameter_count(context(), &count, &o) && !mha_layer_create(context(), &layer, &o, NULL), "%s",
           mha_context_error(context()));
    float *numbers = layer ? mha_layer_view(layer, NULL).q_weight.data : NULL;
    for (int64_t i = 0; numbers && i < count; i++) numbers[i] = number(4, i * i);
    return layer;
}

/* As PyTorch's own file with our metadata, or as a block with the names of a family and without metadata. */
static bool write_layer(const char *path, const problem *p, const mha_layer *layer)
{
    char error[300] = "";
    if (!p->family) return expect(nn_layer_file_save(layer, path, error, sizeof error), "%s", error);
    nn_layer_family family;
    nn_layer_family_of_bare(&family, p->family, NULL, "");
    nn_layer_file file = {.layer = (mha_layer *)(uintptr_t)layer, .family = &family};
    nn_layer_items items;
    snprintf(file.prefix, sizeof file.prefix, "%s", p->prefix);
    nn_layer_file_items(&items, &file, NULL, "");
    bool ok = expect(!nn_safetensors_write(path, items.item, items.count, NULL, 0, error, sizeof error), "%s", error);
    nn_layer_items_free(&items);
    return ok;
}

/* A view without its batch axis where the problem has none. */
static nn_safetensors_item item_of(const problem *p, const char *name, mha_tensor view)
{
    nn_safetensors_item item = nn_safetensors_item_view(name, view);
    if (p->batched) return item;
    item.rank--;
    memmove(item.shape, item.shape + 1, 4 * sizeof *item.shape);
    memmove(item.stride, item.stride + 1, 4 * sizeof *item.stride);
    return item;
}

static void write_input(const char *path, const problem *p)
{
    static float query[2 * TQ * M], key[2 * TK * M], value[2 * TK * M], grad[2 * TQ * M];
    static float attn[MASK_MOST], padding[2 * TK];
    static bool attn_bool[MASK_MOST], padding_bool[2 * TK];
    for (int i = 0; i < 2 * TQ * M; i++) query[i] = number(5, i), grad[i] = number(6, i);
    for (int i = 0; i < 2 * TK * M; i++) key[i] = number(7, i), value[i] = number(8, i);
    bool each = p->attn >= BOOL_MASK_PER_HEAD, bools = p->attn == BOOL_MASK || p->attn == BOOL_MASK_PER_HEAD;
    int64_t copies = each ? p->B * H : 1;
    for (int64_t n = 0; n < copies * TQ * p->Tk; n++) {
        attn[n] = attn_says(p, n / p->Tk / TQ / H, n / p->Tk / TQ % H, n / p->Tk % TQ, n % p->Tk);
        attn_bool[n] = attn[n] == -INFINITY;
    }
    for (int64_t n = 0; n < p->B * p->Tk; n++) {
        padding[n] = padding_says(p, n / p->Tk, n % p->Tk);
        padding_bool[n] = padding[n] == -INFINITY;
    }
    mha_type type = bools ? MHA_BOOL : MHA_FLOAT32;
    const void *mask = bools ? (const void *)attn_bool : attn;
    nn_safetensors_item items[6];
    size_t count = 0;
    items[count++] = item_of(p, "query", mha_tensor_3d(query, MHA_FLOAT32, p->B, TQ, M));
    if (p->inputs > 1) items[count++] = item_of(p, "key", mha_tensor_3d(key, MHA_FLOAT32, p->B, p->Tk, M));
    if (p->inputs > 2) items[count++] = item_of(p, "value", mha_tensor_3d(value, MHA_FLOAT32, p->B, p->Tk, M));
    if (p->grad) items[count++] = item_of(p, "grad_output", mha_tensor_3d(grad, MHA_FLOAT32, p->B, TQ, M));
    if (p->attn)
        items[count++] = nn_safetensors_item_view("attn_mask", each ? mha_tensor_3d(mask, type, copies, TQ, p->Tk)
                                                                    : mha_tensor_2d(mask, type, TQ, p->Tk));
    if (p->padding == BOOL_MASK)
        items[count++] = item_of(p, "key_padding_mask", mha_tensor_2d(padding_bool, MHA_BOOL, p->B, p->Tk));
    if (p->padding == FLOAT_MASK)
        items[count++] = item_of(p, "key_padding_mask", mha_tensor_2d(padding, MHA_FLOAT32, p->B, p->Tk));
    char error[300] = "";
    expect(!nn_safetensors_write(path, items, count, NULL, 0, error, sizeof error), "%s", error);
}

/* ---- Its answer ---------------------------------------------------------------------------------------------------
 * */

enum { PARAMETERS = 1000 };

typedef struct answer {
    double out[2 * TQ * M], weights[2 * H * TQ * (TK + 2)], mean[2 * TQ * (TK + 2)];
    double query[2 * TQ * M], key[2 * TK * M], value[2 * TK * M];
    double q[2 * TQ * M], k[2 * TK * M], v[2 * TK * M], heads[2 * TQ * M];
    double parameters[PARAMETERS]; /* gradients, as the layer's parameters lie */
} answer;

static void solve(answer *a, const problem *p, const mha_layer *layer)
{
    static double in[3][2 * TK * M], parameters[PARAMETERS], dout[2 * TQ * M], bias[MASK_MOST];
    static bool mask[MASK_MOST];
    memset(a, 0, sizeof *a);
    mha_layer_parts parts = mha_layer_view(layer, NULL);
    const float *block = parts.q_weight.data;
    int64_t count = 0;
    mha_layer_parameter_count(context(), &count, mha_layer_shape(layer));
    for (int64_t i = 0; i < count && i < PARAMETERS; i++) parameters[i] = (double)block[i];
    for (int i = 0; i < 2 * TK * M; i++) {
        in[0][i] = (double)number(5, i);
        in[1][i] = p->inputs > 1 ? (double)number(7, i) : in[0][i];
        in[2][i] = p->inputs > 2 ? (double)number(8, i) : in[1][i];
    }
    for (int i = 0; i < 2 * TQ * M; i++) dout[i] = (double)number(6, i);
    for (int64_t n = 0; n < p->B * H * TQ * p->Tk; n++) {
        int64_t b = n / p->Tk / TQ / H;
        float says = attn_says(p, b, n / p->Tk / TQ % H, n / p->Tk % TQ, n % p->Tk);
        says += padding_says(p, b, n % p->Tk);
        mask[n] = says != -INFINITY;
        bias[n] = mask[n] ? (double)says : 0;
    }
#define OF(array, part) (parts.part.data ? (array) + ((const float *)parts.part.data - block) : NULL)
    ref_layer l = {.B = p->B, .Tq = TQ, .Tk = p->Tk, .M = M, .Mk = M, .Mv = M, .H = H, .G = H, .D = D, .E = D};
    l.query = in[0], l.key = in[1], l.value = in[2];
    l.q_weight = OF(parameters, q_weight), l.k_weight = OF(parameters, k_weight);
    l.v_weight = OF(parameters, v_weight), l.q_bias = OF(parameters, q_bias), l.k_bias = OF(parameters, k_bias);
    l.v_bias = OF(parameters, v_bias), l.out_weight = OF(parameters, out_weight);
    l.out_bias = OF(parameters, out_bias), l.bias_k = OF(parameters, bias_k), l.bias_v = OF(parameters, bias_v);
    l.zero_kv = p->extra_keys;
    l.attention = (ref_attention){.scale = NAN, .causal = p->causal, .window_left = -1, .window_right = -1};
    l.attention.mask = mask, l.attention.bias = bias;
    ref_layer_forward(&l, a->out, a->weights, a->mean);
    ref_layer_intermediates(&l, a->q, a->k, a->v, a->heads);
    ref_layer_gradients g = {.query = a->query, .key = a->key, .value = a->value};
    g.q_weight = OF(a->parameters, q_weight), g.k_weight = OF(a->parameters, k_weight);
    g.v_weight = OF(a->parameters, v_weight), g.q_bias = OF(a->parameters, q_bias);
    g.k_bias = OF(a->parameters, k_bias), g.v_bias = OF(a->parameters, v_bias);
    g.out_weight = OF(a->parameters, out_weight), g.out_bias = OF(a->parameters, out_bias);
    g.bias_k = OF(a->parameters, bias_k), g.bias_v = OF(a->parameters, bias_v);
#undef OF
    ref_layer_backward(&l, dout, &g);
    for (int i = 0; i < 2 * TK * M; i++) { /* one tensor in two or three places gets all their gradients */
        if (p->inputs < 3) a->key[i] += a->value[i];
        if (p->inputs < 2 && i < 2 * TQ * M) a->query[i] += a->key[i];
    }
}

/* The tensor of that name, of these sizes, with these numbers to 1e-5 of the largest. */
static void expect_tensor(const nn_safetensors *file, const char *name, nn_safetensors_item like, const double *want)
{
    const nn_safetensors_tensor *got = nn_safetensors_find(file, name);
    if (!expect(got && got->dtype == NN_SAFETENSORS_F32, "no %s", name)) return;
    bool same = got->rank == like.rank && memcmp(got->shape, like.shape, (size_t)like.rank * sizeof *like.shape) == 0;
    char what[80];
    if (!expect(same, "%s is %s", name, nn_safetensors_describe(what, sizeof what, got))) return;
    double largest = 1;
    int64_t rows = got->rank == 2 ? got->shape[0] : 1, columns = got->count / (rows ? rows : 1);
    for (int64_t i = 0; i < got->count; i++) largest = fmax(largest, fabs(want[i]));
    bool turned = like.rank == 2 && like.stride[0] == 1 && like.stride[1] != 1;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double x = (double)((const float *)got->data)[i * columns + j];
            double y = want[turned ? j * rows + i : i * columns + j];
            expect(fabs(x - y) <= 1e-5 * largest, "%s (%d,%d) is %g, not %g", name, (int)i, (int)j, x, y);
        }
}

static void expect_answer(const char *path, const problem *p, const mha_layer *layer)
{
    static answer a;
    char error[300] = "";
    size_t count = 1;
    int64_t keys = p->Tk + 2 * p->extra_keys;
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (!expect(file, "%s", error)) return;
    solve(&a, p, layer);
    expect_tensor(file, "output", item_of(p, "", mha_tensor_3d(NULL, MHA_FLOAT32, p->B, TQ, M)), a.out);
    if (p->weights == 1)
        expect_tensor(file, "weights", item_of(p, "", mha_tensor_4d(NULL, MHA_FLOAT32, p->B, H, TQ, keys)), a.weights);
    if (p->weights == 2)
        expect_tensor(file, "weights", item_of(p, "", mha_tensor_3d(NULL, MHA_FLOAT32, p->B, TQ, keys)), a.mean);
    count += p->weights > 0;
    const char *axes = nn_safetensors_metadata(file, "weights.axes");
    const char *const names[] = {"", "batch,heads,queries,keys", "batch,queries,keys"}, *want = names[p->weights];
    if (!p->batched) want += strcspn(want, ",") + (*want == 'b');
    expect(strcmp(axes ? axes : "", want) == 0, "the axes of weights are '%s', not '%s'", axes ? axes : "", want);
    if (p->intermediates) {
        mha_tensor of_queries = mha_tensor_4d(NULL, MHA_FLOAT32, p->B, H, TQ, D);
        mha_tensor of_keys = mha_tensor_4d(NULL, MHA_FLOAT32, p->B, H, p->Tk, D);
        expect_tensor(file, "q", item_of(p, "", of_queries), a.q);
        expect_tensor(file, "k", item_of(p, "", of_keys), a.k);
        expect_tensor(file, "v", item_of(p, "", of_keys), a.v);
        expect_tensor(file, "heads", item_of(p, "", of_queries), a.heads);
        count += 4;
    }
    if (p->grad) {
        mha_tensor keyed = mha_tensor_3d(NULL, MHA_FLOAT32, p->B, p->Tk, M);
        expect_tensor(file, "grad.query", item_of(p, "", mha_tensor_3d(NULL, MHA_FLOAT32, p->B, TQ, M)), a.query);
        if (p->inputs > 1) expect_tensor(file, "grad.key", item_of(p, "", keyed), a.key);
        if (p->inputs > 2) expect_tensor(file, "grad.value", item_of(p, "", keyed), a.value);
        nn_layer_items items;
        nn_layer_family family;
        nn_layer_family_to_save(&family, layer);
        if (p->family) nn_layer_family_of_bare(&family, p->family, NULL, "");
        nn_layer_file as = {.layer = (mha_layer *)(uintptr_t)layer, .family = &family};
        snprintf(as.prefix, sizeof as.prefix, "%s", p->prefix ? p->prefix : "");
        nn_layer_file_items(&items, &as, NULL, "grad.");
        const float *block = mha_layer_view(layer, NULL).q_weight.data;
        for (size_t i = 0; i < items.count; i++)
            expect_tensor(file, items.item[i].name, items.item[i],
                          a.parameters + ((const float *)items.item[i].data - block));
        count += (size_t)p->inputs + items.count;
        nn_layer_items_free(&items);
    }
    expect(nn_safetensors_count(file) == count, "%zu tensors, not %zu", nn_safetensors_count(file), count);
    nn_safetensors_free(file);
}

/* Writes the files of a problem, runs the command, and holds what it wrote to the oracle. */
static void check(problem p, const char *settings, const char *more)
{
    static const char *const weights[] = {"", "--weights per-head", "--weights=average"};
    p.B = p.batched ? 2 : 1;
    p.Tk = p.inputs > 1 ? TK : TQ;
    mha_layer *layer = make_layer(&p);
    if (!layer) return;
    write_layer("l.safetensors", &p, layer);
    write_input("x.safetensors", &p);
    char args[300];
    snprintf(args, sizeof args, "l.safetensors x.safetensors -o y.safetensors %s %s %s %s %s", weights[p.weights],
             p.causal && !p.family ? "--causal" : "", p.grad ? "--grad" : "", p.intermediates ? "--intermediates" : "",
             more);
    const said *it = run(settings, args);
    int before = harness.failures;
    if (expect(it->status == 0 && !*it->out && one_line(it->err) && strstr(it->err, "mha: l.safetensors: ") &&
                   strstr(it->err, " names; "),
               "exit %d: %s", it->status, it->err))
        expect_answer("y.safetensors", &p, layer);
    expect(harness.failures == before, "masks %d and %d, %d inputs, batched %d, args %s", (int)p.attn, (int)p.padding,
           p.inputs, p.batched, args);
    mha_layer_free(layer);
    unlink("y.safetensors");
}

/* ---- Results ------------------------------------------------------------------------------------------------------
 * */

/* Each kind of mask with each; the rest takes turns. */
TEST(results_are_the_oracles)
{
    int turn = 0;
    for (int attn = NO_MASK; attn <= FLOAT_MASK_PER_HEAD; attn++)
        for (int padding = NO_MASK; padding <= FLOAT_MASK; padding++, turn++)
            for (int inputs = 1; inputs <= 3; inputs++)
                check((problem){.attn = (mask_kind)attn,
                                .padding = (mask_kind)padding,
                                .batched = turn % 4 != 3,
                                .causal = turn % 5 == 1,
                                .extra_keys = (turn + inputs) % 2,
                                .grad = inputs > 1 || turn % 2,
                                .intermediates = (turn + inputs) % 3 == 1,
                                .inputs = inputs,
                                .weights = (turn + inputs) % 3},
                      "", "");
}

TEST(a_block_of_gpt2_has_its_names_and_layout)
{
    problem p = {.batched = true, .causal = true, .grad = true, .inputs = 1, .family = 2};
    p.prefix = "h.0.attn.";
    expect(strcmp(nn_bare_get(p.family)->title, "gpt2") == 0, "not gpt2");
    check(p, "", "--prefix h.0.attn. --heads 2");
    p.causal = false;
    check(p, "", "--prefix h.0.attn. --heads 2 --no-causal");
}

TEST(a_block_of_bert_has_its_names)
{
    problem p = {.batched = true, .grad = true, .inputs = 1, .padding = BOOL_MASK, .family = 3};
    p.prefix = "encoder.layer.0.attention.";
    expect(strcmp(nn_bare_get(p.family)->title, "bert") == 0, "not bert");
    check(p, "", "--prefix=encoder.layer.0.attention. --heads=2");
}

static void slurp_bytes(const char *path, char *bytes, size_t room, size_t *size)
{
    FILE *file = fopen(path, "rb");
    *size = file ? fread(bytes, 1, room, file) : 0;
    if (file) fclose(file);
}

/* And an output that was there is replaced. */
TEST(the_same_bytes_for_any_number_of_threads)
{
    static char one[1 << 15], other[1 << 15];
    size_t size, other_size;
    problem p = {.batched = true, .grad = true, .inputs = 3, .weights = 1, .attn = FLOAT_MASK, .B = 2, .Tk = TK};
    mha_layer *layer = make_layer(&p);
    if (!layer) return;
    write_layer("l.safetensors", &p, layer);
    write_input("x.safetensors", &p);
    mha_layer_free(layer);
    expect(run("", "l.safetensors x.safetensors -o y.safetensors --grad --threads 1")->status == 0, "failed");
    slurp_bytes("y.safetensors", one, sizeof one, &size);
    expect(run("", "--threads 3 --grad -o y.safetensors l.safetensors x.safetensors")->status == 0, "failed");
    slurp_bytes("y.safetensors", other, sizeof other, &other_size);
    expect(size > 1000 && size == other_size && memcmp(one, other, size) == 0, "%zu and %zu bytes", size, other_size);
    unlink("y.safetensors");
}

/* The inputs may have any float type; results are float32. */
TEST(inputs_of_any_float_type)
{
    static const nn_safetensors_dtype types[] = {NN_SAFETENSORS_F64, NN_SAFETENSORS_F16, NN_SAFETENSORS_BF16};
    static const double wide[6] = {1, 2, 3, 4, 5, 6};
    static const uint16_t halves[2][6] = {{0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600},
                                          {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0}};
    static const float plain[6] = {1, 2, 3, 4, 5, 6};
    static const int64_t shape[2] = {1, 6};
    char error[300], first[2000], again[2000];
    size_t first_size, size;
    problem p = {.inputs = 1};
    mha_layer *layer = make_layer(&p);
    if (!layer) return;
    write_layer("l.safetensors", &p, layer);
    mha_layer_free(layer);
    for (int i = -1; i < 3; i++) {
        const void *data = i < 0 ? (const void *)plain : i == 0 ? (const void *)wide : halves[i - 1];
        nn_safetensors_item query =
            nn_safetensors_item_dense("query", i < 0 ? NN_SAFETENSORS_F32 : types[i], 2, shape, data);
        expect(!nn_safetensors_write("x.safetensors", &query, 1, NULL, 0, error, sizeof error), "%s", error);
        const said *it = run("", "l.safetensors x.safetensors -o y.safetensors");
        expect(it->status == 0, "type %d: %s", i, it->err);
        slurp_bytes("y.safetensors", i < 0 ? first : again, sizeof first, i < 0 ? &first_size : &size);
        if (i >= 0) expect(size == first_size && memcmp(first, again, size) == 0, "type %d: other results", i);
    }
    unlink("y.safetensors");
}

TEST(parameters_that_are_not_finite_are_counted)
{
    problem p = {.batched = true, .inputs = 1, .B = 2, .Tk = TQ};
    mha_layer *layer = make_layer(&p);
    if (!layer) return;
    float *numbers = mha_layer_view(layer, NULL).q_weight.data;
    numbers[0] = NAN, numbers[7] = INFINITY;
    write_layer("l.safetensors", &p, layer);
    write_input("x.safetensors", &p);
    mha_layer_free(layer);
    const said *it = run("", "l.safetensors x.safetensors -o y.safetensors");
    expect(it->status == 0 && strncmp(it->err, "mha: l.safetensors: 2 of 168 parameters are not finite\n", 55) == 0,
           "exit %d: %s", it->status, it->err);
    expect(access("y.safetensors", R_OK) == 0, "no output");
    unlink("y.safetensors");
}
