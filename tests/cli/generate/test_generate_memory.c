/* Peak memory of `mha generate`: weights stay in the mapped file, in their own type, so a run takes little more than the file
 * and the cache, also if products round its weights to bfloat16. At most 1.15 of these: code, rows of a prompt, and scratch
 * of products. */
#include "checkpoint.h"
#include "cli/generate/letters.h"

#include <sys/resource.h>

enum { PROMPT = 64, NEW = 16, BLOCKS = 8, KV = 8 * 64 };

static const bench_language shapes[] = {
    {"llama", "",
     "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":8,\"hidden_size\":512,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"intermediate_size\":2048,\"vocab_size\":8000,"
     "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}"},
    {"gpt2", "",
     "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":8,\"n_embd\":512,\"n_head\":8,"
     "\"vocab_size\":24000,\"n_positions\":128}"},
};

/* A file that is a model by itself: its config is in its metadata. Returns its bytes. */
static double write_model(const char *path, const bench_language *shape, mha_type type)
{
    char error[600] = "";
    struct stat about = {0};
    bench_checkpoint c = {0};
    mha_context *ctx = NULL;
    nn_safetensors_item items[256];
    const nn_safetensors_pair note = {"config", shape->config};
    mha_context_create(&ctx, NULL);
    bench_setting set = {.ctx = ctx, .type = type, .compute = MHA_FLOAT32};
    bool good = ctx && bench_checkpoint_make(&c, &set, shape, error) && c.count <= 256;
    for (int64_t n = 0; good && n < c.count; n++)
        items[n] = nn_safetensors_item_view(c.stored[n].name, c.stored[n].tensor);
    good = good && !nn_safetensors_write(path, items, (size_t)c.count, &note, 1, error, sizeof error);
    expect(good && stat(path, &about) == 0, "%s: %s", shape->name, error);
    bench_checkpoint_free(&c);
    mha_context_free(ctx);
    return (double)about.st_size;
}

/* The largest peak of all commands so far. */
static double peak(void)
{
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return 1024.0 * (double)usage.ru_maxrss;
}

TEST(a_run_takes_little_more_than_the_file_and_the_cache)
{
    static const mha_type types[] = {MHA_BFLOAT16,
                                     MHA_FLOAT32}; /* the smaller files first: only the largest peak is known */
    char args[1000] = "", ids[4 * PROMPT + 1] = "";
    const double cache = 2.0 * BLOCKS * KV * sizeof(float) * (PROMPT + NEW);
    for (int n = 0; n < PROMPT; n++) snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%d,", n % 100);
    for (int t = 0; t < 2; t++)
        for (int s = 1; s >= 0; s--) {
            char path[300];
            snprintf(path, sizeof path, "%s", in_folder("model.safetensors"));
            double bytes = write_model(path, &shapes[s], types[t]);
            for (int rounded = 0; rounded < 2; rounded++) {
                snprintf(args, sizeof args, "generate %s --ids %s --tokens %d --threads 2 --quiet%s", path, ids, NEW,
                         rounded ? " --dtype bf16" : "");
                const said *it = command("", args);
                expect(it->status == 0, "exit %d: %s", it->status, it->err);
            }
            expect(peak() <= 1.15 * (bytes + cache), "%s, %s: %.1f MB for a file of %.1f MB and a cache of %.1f MB",
                   shapes[s].name, mha_type_name(types[t]), peak() * 1e-6, bytes * 1e-6, cache * 1e-6);
            printf("        %s, %s: %.2f of the file and the cache\n", shapes[s].name, mha_type_name(types[t]),
                   peak() / (bytes + cache));
        }
}

TEST(more_tokens_than_there_is_memory_for)
{
    char line[900], err[1000];
    const char *model = letters_make("much", NULL);
    snprintf(line, sizeof line, "ulimit -v 4000000; %s generate %s -p a --tokens 1073741824 2>'%s'", COMMAND, model,
             in_folder("much.err"));
    int status = system(line);
    slurp(in_folder("much.err"), err, sizeof err);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 2 && one_line(err) &&
               strstr(err, "mha: generate: --tokens 1073741824: "),
           "%s", err);
}
