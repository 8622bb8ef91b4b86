/* Models of transformers without some of their heads: the file that is written gives the logits of the original with those
 * heads switched off, for small models of our own and, with MHA_MODELS, for the folders of every family. */
#include "checkpoint.h"
#include "io/safetensors_write.h"
#include "public/generation.h"
#include "support/harness.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum { T = 11, MOST = 1024 };

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

static long allowed = -1; /* allocations that succeed before all fail; -1: none fails */

static bool fails(void)
{
    if (allowed > 0) allowed--;
    else if (allowed == 0) return true;
    return false;
}

void *__wrap_malloc(size_t bytes) { return fails() ? NULL : __real_malloc(bytes); }
void *__wrap_calloc(size_t count, size_t bytes) { return fails() ? NULL : __real_calloc(count, bytes); }

static const char out[] = "/tmp/mha-pruned-test.safetensors";

/* The logits of T tokens, or the rows without any, with heads switched off. Returns how many numbers; -1 on error. */
static int64_t run(float **to, mha_context *ctx, const mha_model *m, const bool *off)
{
    int32_t tokens[T];
    nn_model *net = NULL;
    const nn_output_config *o = &m->d.output;
    const nn_sequences text = {.T = T, .tokens = tokens};
    const nn_batch batch = {.B = 1, .encoder = text, .decoder = text};
    const nn_model_options options = {.batch = 1, .encoder_tokens = T, .decoder_tokens = T};
    for (int n = 0; n < T; n++) tokens[n] = 3 + n * 5 % 19;
    if (nn_public_network(ctx, &net, m, &options)) return -1;
    const float *rows = nn_model_forward(net, ctx, &batch, &(nn_call){.off = off});
    int64_t count = (o->pool ? 1 : T) * (o->classes ? o->classes : nn_description_last(&m->d)->blocks.width);
    *to = malloc((size_t)count * sizeof(float));
    if (rows) memcpy(*to, rows, (size_t)count * sizeof(float));
    nn_model_free(net);
    return rows ? count : -1;
}

static void expect_alike(mha_context *ctx, const char *name, const mha_model *m, const bool *off)
{
    mha_model *smaller = NULL;
    float *want = NULL, *got = NULL;
    double most = 0, worst = 0;
    if (!expect(!mha_model_open(ctx, &smaller, out, NULL), "%s: %s", name, mha_context_error(ctx))) return;
    int64_t count = run(&want, ctx, m, off), same = run(&got, ctx, smaller, NULL);
    if (expect(count > 0 && same == count, "%s: %s", name, mha_context_error(ctx)))
        for (int64_t i = 0; i < count; i++) {
            double size = fabs((double)want[i]), error = fabs((double)want[i] - (double)got[i]);
            if (size > most) most = size;
            if (!(error <= worst)) worst = error;
        }
    expect(worst <= 1e-5 * most, "%s: logits differ by %g of %g", name, worst, most);
    expect(mha_model_attention_get(smaller, 0).heads < mha_model_attention_get(m, 0).heads, "%s: as many heads", name);
    free(want);
    free(got);
    mha_model_free(smaller);
}

/* Removes the heads of the last group of block 0, and of the first of the last block. */
static bool try_model(mha_context *ctx, const char *name, const mha_model *m)
{
    bool keep[MOST], off[MOST];
    int64_t heads = nn_description_all_heads(&m->d), last = mha_model_attention_count(m) - 1;
    mha_model_attention a = mha_model_attention_get(m, 0), z = mha_model_attention_get(m, last);
    int64_t share = a.heads / a.kv_heads, end = heads - z.heads;
    if (!expect(heads <= MOST, "%s: %lld heads", name, (long long)heads)) return false;
    for (int64_t h = 0; h < heads; h++)
        off[h] = (h >= a.heads - share && h < a.heads) || (z.kv_heads > 1 && h >= end && h < end + share);
    for (int64_t h = 0; h < heads; h++) keep[h] = !off[h];
    remove(out);
    bool saved = !mha_model_save_pruned(ctx, m, out, keep, heads);
    if (saved) expect_alike(ctx, name, m, off);
    else expect(access(out, F_OK) != 0, "%s: a file in spite of '%s'", name, mha_context_error(ctx));
    if (saved && share > 1) { /* one head of a group alone */
        keep[a.heads - 1] = true;
        expect(mha_model_save_pruned(ctx, m, out, keep, heads) == MHA_BAD_FILE &&
                   strstr(mha_context_error(ctx), "share keys and values"),
               "%s: %s", name, mha_context_error(ctx));
    }
    return saved;
}

static mha_context *context(void)
{
    mha_context *ctx = NULL;
    expect(!mha_context_create(&ctx, NULL), "no context");
    return ctx;
}

/* ---- Small models of our own ------------------------------------------------------------------------------------- */

static const bench_language shapes[] = {
    {"gpt2", "",
     "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":3,\"n_embd\":48,\"n_head\":4,"
     "\"pruned_heads\":{},\"vocab_size\":97,\"n_positions\":40}"},
    {"llama", "",
     "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":48,"
     "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"intermediate_size\":80,\"vocab_size\":97,"
     "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}"},
};

/* `broken`: the last number of a weight is NaN. */
static mha_model *make_model(mha_context *ctx, const bench_language *shape, mha_type type, bool broken)
{
    char error[600] = "", path[] = "/tmp/mha-whole-test.safetensors";
    bench_checkpoint c = {0};
    mha_model *m = NULL;
    nn_safetensors_item items[64];
    const nn_safetensors_pair note = {"config", shape->config};
    bench_setting set = {.ctx = ctx, .type = type, .compute = MHA_FLOAT32};
    bool good = bench_checkpoint_make(&c, &set, shape, error) && c.count <= 64;
    if (good && broken) {
        mha_tensor t = c.stored[c.count - 1].tensor;
        size_t size = mha_type_size(t.type), last = (size_t)(t.size[0] * (t.rank > 1 ? t.size[1] : 1)) - 1;
        memset((char *)t.data + last * size, 0xff, size);
    }
    for (int64_t n = 0; good && n < c.count; n++)
        items[n] = nn_safetensors_item_view(c.stored[n].name, c.stored[n].tensor);
    good = good && !nn_safetensors_write(path, items, (size_t)c.count, &note, 1, error, sizeof error);
    expect(good && !mha_model_open(ctx, &m, path, NULL), "%s: %s %s", shape->name, error, mha_context_error(ctx));
    remove(path);
    bench_checkpoint_free(&c);
    return m;
}

TEST(a_file_without_heads_is_the_model_with_them_off)
{
    mha_context *ctx = context();
    for (int s = 0; s < 2; s++)
        for (int t = 0; t < 2; t++) {
            mha_model *m = make_model(ctx, &shapes[s], t ? MHA_BFLOAT16 : MHA_FLOAT32, false);
            if (m) expect(try_model(ctx, shapes[s].name, m), "%s: %s", shapes[s].name, mha_context_error(ctx));
            mha_model_free(m);
        }
    remove(out);
    mha_context_free(ctx);
}

/* Heads of both blocks: after the weights of one were copied, too. */
TEST(a_model_keeps_all_heads_if_memory_runs_out)
{
    mha_context *ctx = context();
    mha_model *m = make_model(ctx, &shapes[1], MHA_FLOAT32, false);
    const bool off[12] = {[1] = true, [8] = true};
    float *before = NULL, *after = NULL;
    int64_t count = m ? run(&before, ctx, m, NULL) : -1, failures = 0;
    mha_status status = MHA_NO_MEMORY;
    while (count > 0 && status == MHA_NO_MEMORY && failures < 100) {
        allowed = failures++;
        status = mha_model_switch_off(ctx, m, off, 12);
        allowed = -1;
        bool same = run(&after, ctx, m, NULL) == count && !memcmp(before, after, (size_t)count * sizeof(float));
        expect(same == (status == MHA_NO_MEMORY), "status %d, logits %s", (int)status, same ? "as before" : "changed");
        free(after);
    }
    expect(status == MHA_OK && failures > 3, "status %d after %d failures", (int)status, (int)failures);
    free(before);
    mha_model_free(m);
    mha_context_free(ctx);
}

TEST(what_cannot_be_removed_is_refused)
{
    mha_context *ctx = context();
    mha_model *m = make_model(ctx, &shapes[0], MHA_FLOAT32, false), *smaller = NULL;
    bool keep[12] = {false};
    expect(mha_model_save_pruned(ctx, m, out, keep, 11) == MHA_BAD_ARGUMENT, "eleven of twelve heads");
    expect(mha_model_save_pruned(ctx, m, out, keep, 12) == MHA_BAD_FILE &&
               strstr(mha_context_error(ctx), "at least one head"),
           "%s", mha_context_error(ctx));
    memset(keep, 1, sizeof keep);
    keep[5] = false;
    expect(!mha_model_save_pruned(ctx, m, out, keep, 12) && !mha_model_open(ctx, &smaller, out, NULL), "%s",
           mha_context_error(ctx));
    expect(mha_model_save_pruned(ctx, smaller, out, keep, 11) == MHA_BAD_FILE &&
               strstr(mha_context_error(ctx), "prune the original"),
           "twice: %s", mha_context_error(ctx));
    mha_model_free(smaller);
    mha_model_free(m);
    remove(out);
    mha_context_free(ctx);
}

TEST(numbers_that_are_not_finite_are_named)
{
    mha_context *ctx = context();
    for (int t = 0; t < 3; t++) {
        mha_model *m = make_model(ctx, &shapes[1], (mha_type[]){MHA_FLOAT32, MHA_BFLOAT16, MHA_FLOAT16}[t], true);
        bool keep[12];
        for (int n = 0; n < 12; n++) keep[n] = n > 1;
        expect(mha_model_save_pruned(ctx, m, out, keep, 12) == MHA_BAD_FILE &&
                   strstr(mha_context_error(ctx), "contains values that are not finite") && access(out, F_OK) != 0,
               "%s", mha_context_error(ctx));
        mha_model_free(m);
    }
    mha_context_free(ctx);
}

TEST(lists_of_heads_that_make_no_sense)
{
    static const struct {
        const char *list, *says;
    } wrong[] = {
        {"{\"2\":[0]}", "wrong: pruned_heads: there is no such layer"},
        {"{\"0\":[6]}", "wrong: pruned_heads: there is no such head"},
        {"{\"0\":[-1]}", "wrong: pruned_heads: there is no such head"},
        {"{\"0\":[0.5]}", "wrong: pruned_heads: there is no such head"},
        {"{\"1\":[0]}", "wrong: pruned_heads: heads that share keys and values go together"},
        {"{\"1\":[0,1,2,3,4,5]}", "wrong: pruned_heads: a layer keeps at least one head"},
        {"7", "wrong: pruned_heads must name lists of heads"},
    };
    mha_context *ctx = context();
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        char config[600], error[200] = "";
        bench_checkpoint c;
        snprintf(config, sizeof config, "{\"pruned_heads\":%s,%s", wrong[n].list, shapes[1].config + 1);
        const bench_setting set = {.ctx = ctx, .type = MHA_FLOAT32, .compute = MHA_FLOAT32};
        const bench_language shape = {"wrong", "", config};
        expect(!bench_checkpoint_make(&c, &set, &shape, error) && strcmp(error, wrong[n].says) == 0, "%s: '%s'",
               wrong[n].list, error);
        bench_checkpoint_free(&c);
    }
    mha_context_free(ctx);
}

/* ---- Those of transformers --------------------------------------------------------------------------------------- */

TEST(families_lose_heads_or_say_why_not)
{
    const char *models = getenv("MHA_MODELS");
    char path[1000];
    snprintf(path, sizeof path, "%s/hf", models ? models : "");
    DIR *folder = models ? opendir(path) : NULL;
    if (!folder) {
        printf("        MHA_MODELS names no models of transformers\n");
        return;
    }
    mha_context *ctx = context();
    int smaller = 0, whole = 0;
    for (struct dirent *e; (e = readdir(folder));) {
        mha_model *m = NULL;
        if (*e->d_name == '.' || strchr(e->d_name, '.')) continue;
        snprintf(path, sizeof path, "%s/hf/%.200s", models, e->d_name);
        if (!expect(!mha_model_open(ctx, &m, path, NULL), "%s", mha_context_error(ctx))) continue;
        if (nn_description_last(&m->d)->input.kind == NN_INPUT_TOKENS) {
            if (try_model(ctx, e->d_name, m)) smaller++;
            else printf("        %s\n", mha_context_error(ctx)), whole++;
        }
        mha_model_free(m);
    }
    printf("        %d families without heads, %d that keep them\n", smaller, whole);
    expect(smaller >= 20 && whole >= 5, "%d and %d", smaller, whole);
    closedir(folder);
    remove(out);
    mha_context_free(ctx);
}
