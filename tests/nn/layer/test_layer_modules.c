/* Modules as people write them: linear layers under the usual names, lists of heads, names that the caller gives. Each
 * file is written here, loaded, and its layer compared with the oracle, which gets the numbers of the file. */
#include "support/harness.h"
#include "support/numbers.h"
#include "layer.h"
#include "layer/file.h"

#include <unistd.h>

enum { H = 2, D = 3, M = 5, N = 4, T = 4, ROLES = NN_LAYER_MODULES, TENSORS = 40 };

static char folder[] = "/tmp/mha-modules-XXXXXX", path[64];
static mha_context *ctx;

__attribute__((constructor)) static void begin(void)
{
    if (!mkdtemp(folder) || mha_context_create(&ctx, NULL)) abort();
    snprintf(path, sizeof path, "%s/m", folder);
}

__attribute__((destructor)) static void end(void)
{
    mha_context_free(ctx);
    unlink(path);
    rmdir(folder);
}

/* ---- A module ---------------------------------------------------------------------------------------------------- */

/* The numbers of a layer, whole, and how its file spells them. */
typedef struct module {
    const char *name[ROLES]; /* of q, k, v and the output projection; the last may be NULL */
    const char *prefix, *list;
    bool biases, transposed; /* weights are bare parameters (in,out), without ".weight" */
    const char *mask;        /* NULL, or the name of a buffer */
    bool upper;              /* the mask is true where a key is hidden */
    float weight[ROLES][H * D * 8], bias[ROLES][H * D];
    float turned[ROLES][H * D * 8];
    nn_safetensors_item item[TENSORS];
    char text[TENSORS][120];
    size_t count;
} module;

static int64_t rows_of(int role) { return role == NN_LAYER_MODULE_OUT ? N : H * D; }
static int64_t columns_of(int role) { return role == NN_LAYER_MODULE_OUT ? H * D : M; }

static void add(module *m, const char *list, const char *name, const char *ending, mha_tensor view)
{
    snprintf(m->text[m->count], sizeof m->text[0], "%s%s%s%s", m->prefix ? m->prefix : "", list, name, ending);
    m->item[m->count] = nn_safetensors_item_view(m->text[m->count], view);
    m->count++;
}

static void add_role(module *m, int role)
{
    int64_t rows = rows_of(role), columns = columns_of(role);
    int copies = m->list && role != NN_LAYER_MODULE_OUT ? H : 1;
    for (int h = 0; h < copies; h++) {
        char list[60] = "";
        int64_t each = rows / copies;
        if (copies > 1) snprintf(list, sizeof list, "%s.%d.", m->list, h);
        mha_tensor weight = mha_tensor_2d(m->weight[role] + h * each * columns, MHA_FLOAT32, each, columns);
        for (int64_t n = 0; n < rows * columns; n++)
            m->turned[role][n % columns * rows + n / columns] = m->weight[role][n];
        if (m->transposed) weight = mha_tensor_2d(m->turned[role], MHA_FLOAT32, columns, rows);
        add(m, list, m->name[role], m->transposed ? "" : ".weight", weight);
        if (m->biases) add(m, list, m->name[role], ".bias", mha_tensor_1d(m->bias[role] + h * each, MHA_FLOAT32, each));
    }
}

static void write_module(module *m)
{
    static float mask[T * T];
    char error[300] = "";
    rng r = rng_make(7, 3);
    for (int role = 0; role < ROLES; role++) {
        for (int n = 0; n < H * D * 8; n++) m->weight[role][n] = (float)rng_normal(&r);
        for (int n = 0; n < H * D; n++) m->bias[role][n] = (float)rng_normal(&r);
    }
    m->count = 0;
    for (int role = 0; role < ROLES; role++)
        if (m->name[role]) add_role(m, role);
    for (int n = 0; n < T * T; n++) mask[n] = (n % T <= n / T) != m->upper ? 1.0f : 0.0f;
    for (int h = 0; m->mask && h < (m->list ? H : 1); h++) {
        char list[60] = "";
        if (m->list) snprintf(list, sizeof list, "%s.%d.", m->list, h);
        add(m, list, m->mask, "", mha_tensor_2d(mask, MHA_FLOAT32, T, T));
    }
    expect(!nn_safetensors_write(path, m->item, m->count, NULL, 0, error, sizeof error), "%s", error);
}

/* ---- Its layer --------------------------------------------------------------------------------------------------- */

static const double *wide(double *to, const float *from, int64_t count)
{
    for (int64_t n = 0; n < count; n++) to[n] = (double)from[n];
    return to;
}

/* The layer's results are the oracle's for the numbers of the module. */
static void expect_oracle(const module *m, mha_layer *layer, const char *what)
{
    static double weight[ROLES][H * D * 8], bias[ROLES][H * D], x[T * M], want[T * H * D];
    static float in[T * M], out[T * H * D];
    bool projects = m->name[NN_LAYER_MODULE_OUT];
    rng r = rng_make(5, 5);
    for (int n = 0; n < T * M; n++) x[n] = (double)(in[n] = (float)rng_normal(&r));
    for (int role = 0; role < ROLES; role++) {
        wide(weight[role], m->weight[role], H * D * 8);
        wide(bias[role], m->bias[role], H * D);
    }
    ref_layer l = {.B = 1, .Tq = T, .Tk = T, .M = M, .Mk = M, .Mv = M, .H = H, .G = H, .D = D, .E = D, .N = N};
    l.query = l.key = l.value = x;
    l.q_weight = weight[0], l.k_weight = weight[1], l.v_weight = weight[2];
    if (m->biases) l.q_bias = bias[0], l.k_bias = bias[1], l.v_bias = bias[2];
    if (projects) l.out_weight = weight[3];
    if (projects && m->biases) l.out_bias = bias[3];
    l.attention = (ref_attention){.scale = NAN, .causal = m->mask, .window_left = -1, .window_right = -1};
    ref_layer_forward(&l, want, NULL, NULL);
    mha_layer_inputs inputs = {.query = mha_tensor_3d(in, MHA_FLOAT32, 1, T, M)};
    int64_t columns = projects ? N : H * D;
    mha_status status =
        mha_layer_forward(ctx, layer, mha_tensor_3d(out, MHA_FLOAT32, 1, T, columns), NULL, &inputs, NULL, NULL);
    if (!expect(!status, "%s: %s", what, mha_context_error(ctx))) return;
    for (int64_t n = 0; n < T * columns; n++)
        expect(fabs((double)out[n] - want[n]) <= 3e-5, "%s: result %lld is %g, not %g", what, (long long)n,
               (double)out[n], want[n]);
}

static void check_module(module *m, nn_layer_file_options options, const char *title)
{
    char error[400] = "";
    nn_layer_file file;
    nn_layer_items items;
    write_module(m);
    if (!expect(nn_layer_file_load(&file, ctx, path, &options, error, sizeof error), "%s: %s", title, error)) return;
    expect(strcmp(file.family->title, title) == 0, "'%s' instead of '%s'", file.family->title, title);
    expect(file.heads_from == (m->list ? MHA_LAYER_FROM_TENSORS : MHA_LAYER_FROM_OPTIONS), "%s: heads from %d", title,
           (int)file.heads_from);
    expect_oracle(m, file.layer, title);
    expect(nn_layer_file_items(&items, &file, NULL, ""), "no memory");
    size_t parameters = m->count - (m->mask ? (m->list ? H : 1) : 0);
    expect(items.count == parameters, "%s: %zu items of %zu", title, items.count, parameters);
    for (size_t n = 0; n < items.count; n++) { /* under their own names and in their own shapes, whatever the order */
        size_t k = 0;
        while (k < m->count && strcmp(m->item[k].name, items.item[n].name) != 0) k++;
        expect(k < m->count && items.item[n].rank == m->item[k].rank &&
                   memcmp(items.item[n].shape, m->item[k].shape, 2 * sizeof(int64_t)) == 0,
               "%s: item %s", title, items.item[n].name);
    }
    nn_layer_items_free(&items);
    nn_layer_file_free(&file);
}

static const nn_layer_file_options two_heads = {.heads = H};

TEST(the_usual_names)
{
    static const struct {
        const char *name[ROLES], *title;
    } all[] = {
        {{"W_q", "W_k", "W_v", "W_o"}, "W_q, W_k, W_v, W_o"},
        {{"w_q", "w_k", "w_v", "w_o"}, "w_q, w_k, w_v, w_o"},
        {{"wq", "wk", "wv", "wo"}, "wq, wk, wv, wo"},
        {{"W_query", "W_key", "W_value", "out_proj"}, "W_query, W_key, W_value, out_proj"},
        {{"query_linear", "key_linear", "value_linear", "out_linear"},
         "query_linear, key_linear, value_linear, out_linear"},
        {{"q_linear", "k_linear", "v_linear", "out"}, "q_linear, k_linear, v_linear, out"},
        {{"query", "key", "value", "fc_out"}, "query, key, value, fc_out"},
        {{"queries", "keys", "values", "fc_out"}, "queries, keys, values, fc_out"},
        {{"q_proj", "k_proj", "v_proj", "fc_out"}, "q_proj, k_proj, v_proj, fc_out"},
        {{"fc_q", "fc_k", "fc_v", "fc_o"}, "fc_q, fc_k, fc_v, fc_o"},
        {{"to_q", "to_k", "to_v", "to_out.0"}, "to_q, to_k, to_v, to_out.0"},
        {{"linears.0", "linears.1", "linears.2", "linears.3"}, "linears.0, linears.1, linears.2, linears.3"},
        {{"W_q", "W_k", "W_v", NULL}, "W_q, W_k, W_v"},
    };
    static const char *const prefixes[] = {NULL, "attention.", "model.layers.3.mha."};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        for (int kind = 0; kind < 6; kind++) {
            static module m;
            m = (module){.prefix = prefixes[kind % 3], .biases = kind / 3};
            memcpy(m.name, all[n].name, sizeof m.name);
            check_module(&m, two_heads, all[n].title); /* the prefix of all names is found */
            nn_layer_file_options options = two_heads;
            options.prefix = m.prefix;
            check_module(&m, options, all[n].title);
        }
}

TEST(a_list_of_heads)
{
    static const struct {
        const char *list, *name[ROLES], *title;
    } all[] = {
        {"heads", {"W_query", "W_key", "W_value", NULL}, "heads.N.W_query, heads.N.W_key, heads.N.W_value"},
        {"heads",
         {"W_query", "W_key", "W_value", "out_proj"},
         "heads.N.W_query, heads.N.W_key, heads.N.W_value, out_proj"},
        {"heads", {"query", "key", "value", "proj"}, "heads.N.query, heads.N.key, heads.N.value, proj"},
        {"attention_heads",
         {"W_q", "W_k", "W_v", "W_o"},
         "attention_heads.N.W_q, attention_heads.N.W_k, attention_heads.N.W_v, W_o"},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        for (int kind = 0; kind < 8; kind++) {
            static module m;
            m = (module){.list = all[n].list, .prefix = kind & 1 ? "sa." : NULL, .biases = kind & 2};
            if (kind & 4) m.mask = n % 2 ? "mask" : "tril", m.upper = n % 2;
            memcpy(m.name, all[n].name, sizeof m.name);
            check_module(&m, (nn_layer_file_options){0}, all[n].title); /* the list says how many heads there are */
        }
}

TEST(a_buffer_with_a_causal_mask)
{
    for (int upper = 0; upper < 2; upper++) {
        static module m;
        m = (module){.name = {"W_query", "W_key", "W_value", "out_proj"}, .mask = "mask", .upper = upper};
        check_module(&m, two_heads, "W_query, W_key, W_value, out_proj");
    }
}

TEST(names_of_the_caller)
{
    static module m;
    m = (module){.name = {"alpha", "beta", "gamma", "delta"}, .biases = true};
    nn_layer_file_options options = {.heads = H, .map = {.name = {"alpha", "beta", "gamma", "delta"}}};
    check_module(&m, options, "alpha, beta, gamma, delta");
    m.list = "parts";
    options =
        (nn_layer_file_options){.map = {.name = {"parts.{h}.alpha", "parts.{h}.beta", "parts.{h}.gamma", "delta"}}};
    check_module(&m, options, "parts.N.alpha, parts.N.beta, parts.N.gamma, delta");
    m = (module){.name = {"W_q", "W_k", "W_v", "final"}}; /* the rest by usual names */
    options = (nn_layer_file_options){.heads = H, .map = {.name = {NULL, NULL, NULL, "final"}}};
    check_module(&m, options, "W_q, W_k, W_v, final");
    m = (module){.name = {"W_q", "W_k", "W_v", "W_o"}, .transposed = true};
    options = (nn_layer_file_options){.heads = H, .map = {.name = {"W_q.T", "W_k.T", "W_v.T", "W_o.T"}}};
    check_module(&m, options, "W_q.T, W_k.T, W_v.T, W_o.T");
}

/* ---- What is refused -------------------------------------------------------------------------------------------- */

static void refuse_at(int line, nn_layer_file_options options, const char *says)
{
    char error[400] = "", want[400];
    nn_layer_file file;
    bool ok = nn_layer_file_load(&file, ctx, path, &options, error, sizeof error);
    snprintf(want, sizeof want, "%s: %s", path, says);
    expect(!ok && !file.layer && strcmp(error, want) == 0, "line %d: '%s' instead of '%s'", line, error, want);
    nn_layer_file_free(&file);
}
#define REFUSE(options, says) refuse_at(__LINE__, options, says)

/* Writes the module without its tensor of that name, or with another name for it. */
static void write_without(module *m, const char *name, const char *instead)
{
    char error[300] = "";
    write_module(m);
    for (size_t n = 0; n < m->count; n++) {
        if (strcmp(m->item[n].name, name) != 0) continue;
        if (instead) m->item[n].name = instead;
        else m->item[n] = m->item[--m->count];
        break;
    }
    expect(!nn_safetensors_write(path, m->item, m->count, NULL, 0, error, sizeof error), "%s", error);
}

TEST(modules_with_missing_or_foreign_parts)
{
    static module m;
    m = (module){.name = {"W_q", "W_k", "W_v", "W_o"}, .biases = true};
    write_module(&m);
    REFUSE((nn_layer_file_options){0}, "the number of heads is not in the file; give heads (or metadata \"heads\")");
    write_without(&m, "W_v.weight", NULL);
    REFUSE(two_heads, "W_v.weight is missing; if it has another name, give the name of v");
    write_without(&m, "W_k.bias", NULL);
    REFUSE(two_heads, "W_k.bias is missing, but W_v.bias is present");
    write_without(&m, "W_o.bias", "norm.weight");
    REFUSE(two_heads,
           "tensor \"norm.weight\" does not belong to an attention layer with the names of W_q, W_k, W_v, W_o");
    write_without(&m, "W_o.bias", "proj.weight");
    REFUSE(two_heads, "both W_o.weight and proj.weight could be the output projection; give the name of the output "
                      "projection");
    m = (module){.name = {"alpha", "W_k", "W_v", "W_o"}};
    write_module(&m);
    REFUSE(two_heads, "W_q.weight is missing; if it has another name, give the name of q");
    nn_layer_file_options map = {.heads = H, .map = {.name = {"beta", NULL, NULL, NULL}}};
    REFUSE(map, "the name of q: there is no tensor \"beta.weight\" or \"beta\"");
    m = (module){.name = {"alpha", "beta", "gamma", "delta"}};
    write_module(&m);
    REFUSE(two_heads, "no tensor has the name of an attention layer's parameter");
    map.map.name[0] = "alpha";
    REFUSE(map, "no tensor has a usual name of this projection; give the name of k");
}

TEST(bare_parameters_need_their_layout)
{
    static module m;
    m = (module){.name = {"W_query", "W_key", "W_value", NULL}, .transposed = true};
    write_module(&m);
    REFUSE(two_heads,
           "W_query is a parameter, not the weight of a linear layer: give the name of q as W_query if it is "
           "(out,in), as W_query.T if it is (in,out), and so on");
}

TEST(lists_that_do_not_fit)
{
    static module m;
    static float mask[T * T];
    m = (module){.list = "heads", .name = {"W_query", "W_key", "W_value", "out_proj"}};
    write_module(&m);
    REFUSE((nn_layer_file_options){.heads = 3}, "the file has 2 heads, but 3 were requested");
    write_without(&m, "heads.1.W_key.weight", NULL);
    REFUSE((nn_layer_file_options){0}, "heads.1.W_key.weight is missing, but heads.0.W_key.weight is present");
    write_without(&m, "heads.1.W_value.weight", "heads.2.W_value.weight");
    REFUSE((nn_layer_file_options){0},
           "tensor \"heads.2.W_value.weight\" does not belong to an attention layer with the "
           "names of heads.N.W_query, heads.N.W_key, heads.N.W_value, out_proj");
    write_module(&m);
    char error[300] = "";
    for (size_t n = 0; n < m.count; n++)
        if (strcmp(m.item[n].name, "heads.1.W_key.weight") == 0) m.item[n].shape[0]--;
    expect(!nn_safetensors_write(path, m.item, m.count, NULL, 0, error, sizeof error), "%s", error);
    REFUSE((nn_layer_file_options){0},
           "heads.1.W_key.weight is (2,5), but heads.0.W_key.weight is (3,5): all heads must "
           "have the same shape");
    m.mask = "mask";
    write_module(&m);
    mask[1] = 1;
    m.item[m.count - 1].data = mask;
    expect(!nn_safetensors_write(path, m.item, m.count, NULL, 0, error, sizeof error), "%s", error);
    REFUSE((nn_layer_file_options){0}, "heads.1.mask is not a causal mask, and no other is known");
}
