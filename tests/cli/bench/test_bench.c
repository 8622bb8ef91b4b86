/* mha bench: its options, the fields that programs read, what --save keeps, and the peers. Speed is not tested here,
 * nor the kernels; but a run fails by itself when its results differ from the oracle's or the peer's. */
#include "cli/command.h"
#include "bench.h"

#include <mha.h>
#include "io/safetensors.h"
#include "families/vit_file.h"
#include "support/numbers.h"

TEST(wrong_use_is_one_line_that_helps)
{
    static const struct {
        const char *args, *says;
    } wrong[] = {
        {"--shape bert_bas", "mha: bench: --shape cannot be 'bert_bas'; did you mean 'bert_base'?\n"},
        {"--shape zzzzzzzzzz", "mha: bench: --shape cannot be 'zzzzzzzzzz'; see 'mha bench --help'\n"},
        {"--pass forwad", "mha: bench: --pass must be forward, backward, decode, gemm, layer, train, infer, generate, "
                          "prompt, scaling or all, not 'forwad'; did you mean 'forward'?\n"},
        {"--dtype bf61", "mha: bench: --dtype must be f32, bf16 or f16, not 'bf61'\n"},
        {"--peer opnblas", "mha: bench: --peer must be openblas, loop or none, not 'opnblas'\n"},
        {"--threads 0", "mha: bench: --threads must be a number from 1 to 4096, not '0'\n"},
        {"--threads two", "mha: bench: --threads must be a number from 1 to 4096, not 'two'\n"},
        {"--seconds 1s", "mha: bench: --seconds must be a number from 0 to 3600, not '1s'\n"},
        {"--seconds nan", "mha: bench: --seconds must be a number from 0 to 3600, not 'nan'\n"},
        {"--seconds 0x1", "mha: bench: --seconds must be a number from 0 to 3600, not '0x1'\n"},
        {"--batch 0", "mha: bench: --batch must be a number from 1 to 65536, not '0'\n"},
        {"--batch 8x", "mha: bench: --batch must be a number from 1 to 65536, not '8x'\n"},
        {"--pass train --dtype f16", "mha: bench: models are measured in f32 and bf16 only\n"},
        {"--shape vit_digits --dtype f16", "mha: bench: models are measured in f32 and bf16 only\n"},
        {"--shape vit_digits --pass gemm", "mha: bench: vit_digits has no pass 'gemm'; see 'mha bench --list'\n"},
        {"--isa abacus", "mha: bench: --isa: there is no instruction set called 'abacus'\n"},
        {"--save /no/such", "mha: bench: --save: cannot open the folder '/no/such': No such file or directory\n"},
        {"--save /dev/null", "mha: bench: --save: cannot open the folder '/dev/null': Not a directory\n"},
        {"--save", "mha: bench: --save needs a value; see 'mha bench --help'\n"},
        {"--lits", "mha: bench: unknown option '--lits'; did you mean '--list'?\n"},
        {"vit_b16", "mha: bench: unexpected argument 'vit_b16'; see 'mha bench --help'\n"},
        {"--shape vit_b16 --pass gemm", "mha: bench: vit_b16 has no pass 'gemm'; see 'mha bench --list'\n"},
        {"-o x.svg", "mha: bench: -o is for --pass scaling\n"},
        {"--pass layer --length 64", "mha: bench: --length is for --pass scaling\n"},
        {"--pass scaling --length 63", "mha: bench: --length must be a number from 64 to 65536, not '63'\n"},
        {"--pass scaling --shape vit_b16", "mha: bench: --pass scaling has its own sizes and takes no --shape\n"},
        {"--pass scaling --batch 2", "mha: bench: --pass scaling has its own sizes and takes no --batch\n"},
        {"--pass gemm --prompt 8", "mha: bench: --prompt is for --pass generate and --pass prompt\n"},
        {"--tokens 8", "mha: bench: --tokens is for --pass generate and --pass prompt\n"},
        {"--pass train --compute bf16", "mha: bench: --compute is for --pass generate and --pass prompt\n"},
        {"--pass prompt --compute f16", "mha: bench: --compute must be f32 or bf16, not 'f16'\n"},
        {"--pass prompt --batch 2", "mha: bench: language models are measured one text at a time, without --batch\n"},
        {"--shape gpt2_124m --pass infer", "mha: bench: gpt2_124m has no pass 'infer'; see 'mha bench --list'\n"},
        {"--pass scalin", "mha: bench: --pass must be forward, backward, decode, gemm, layer, train, infer, generate, "
                          "prompt, scaling or all, not 'scalin'; did you mean 'scaling'?\n"},
        {"--shape small_512 --pass decode", "mha: bench: small_512 has no pass 'decode'; see 'mha bench --list'\n"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char args[200];
        snprintf(args, sizeof args, "bench %s", wrong[i].args);
        const said *it = command("", args);
        expect(it->status == 2 && !*it->out && strcmp(it->err, wrong[i].says) == 0, "%s: exit %d, %s", args, it->status,
               it->err);
    }
}

TEST(list_tells_what_would_be_measured)
{
    static const struct {
        const char *args, *says;
    } asks[] = {
        {"--shape vit_b16", "forward vit_b16\nbackward vit_b16\n"},
        {"--shape small_512 --dtype bf16", "gemm small_512\n"},
        {"--pass decode", "decode decode_gqa_4k\ndecode decode_b32_1k\n"},
        {"--shape vit_digits --dtype bf16", "train vit_digits\ninfer vit_digits\n"},
        {"--pass infer", "infer vit_digits\n"},
        {"--shape llama_134m --dtype f16", "prompt llama_134m\ngenerate llama_134m\n"},
        {"--pass generate", "generate gpt2_124m\ngenerate llama_134m\ngenerate llama_1b\n"},
        {"--pass scaling --length 128", "scaling T T=64,H=8,D=64\nscaling T T=128,H=8,D=64\n"},
        {"--shape mha_gpt3_175b", "layer mha_gpt3_175b\n"}, /* by name, and not among all */
        {"--shape all --pass all", NULL},
    };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        char args[200];
        snprintf(args, sizeof args, "bench --list %s", asks[i].args);
        const said *it = command("", args);
        expect(it->status == 0 && !*it->err, "%s: exit %d, %s", args, it->status, it->err);
        if (asks[i].says) expect(strcmp(it->out, asks[i].says) == 0, "%s: %s", args, it->out);
        else expect(strstr(it->out, "backward long_16k\n") && strstr(it->out, "train vit_digits\n"), "%s", it->out);
        if (!asks[i].says) expect(!strstr(it->out, "llama"), "language models among all: %s", it->out);
    }
    const said *half = command("", "bench --list --dtype f16");
    expect(half->status == 0 && strstr(half->out, "layer ") && !strstr(half->out, "vit_digits"), "%s", half->out);
}

/* ---- What programs read ------------------------------------------------------------------------------------------ */

static double number(const char *line, const char *key)
{
    const char *text = json_field(line, key);
    char *end;
    double value = strtod(text, &end);
    return expect(*text && !*end, "%s is '%s'", key, text) ? value : NAN;
}

static void expect_word(const char *line, const char *key, const char *want)
{
    expect(strcmp(json_field(line, key), want) == 0, "%s is '%s', not '%s'", key, json_field(line, key), want);
}

/* The fields that every line has. A sanitizer or an emulator may make things slow, but not impossible. */
static void expect_sound(const char *line, double tolerance)
{
    double median = number(line, "ms_median"), best = number(line, "ms_best");
    expect(best > 0 && median >= best, "median %g, best %g", median, best);
    expect(number(line, "gflops") > 0, "%s", line);
    expect(number(line, "max_error") <= tolerance, "%s", line);
    expect(number(line, "scratch_bytes") >= 0, "%s", line);
}

static void expect_share(const char *line, const char *rate, const char *limit, const char *percent)
{
    double want = 100 * number(line, rate) / number(line, limit), got = number(line, percent);
    expect(fabs(got - want) <= 0.06 + 0.01 * want, "%s is %g, but %s / %s is %g", percent, got, rate, limit, want);
}

static const said *bench(const char *args)
{
    char line[400];
    snprintf(line, sizeof line, "bench --seconds 0.05 --json --save '%s' %s", command_folder, args);
    const said *it = command("", line);
    expect(it->status == 0 && !*it->err && one_line(it->out), "%s: exit %d, %s", line, it->status, it->err);
    return it;
}

static nn_safetensors *saved(const char *name)
{
    char error[300];
    nn_safetensors *file;
    nn_safetensors_open(&file, in_folder(name), error, sizeof error);
    expect(file, "%s", file ? "" : error);
    unlink(in_folder(name));
    return file;
}

/* A limit on the size of files is a full disk to a writer. */
TEST(a_full_disk_leaves_the_old_arrays)
{
    char line[400], text[20], path[300];
    snprintf(path, sizeof path, "%s/gemm-small_512-f32.safetensors", command_folder);
    snprintf(line, sizeof line, "bench --pass gemm --shape small_512 --seconds 0.001 --peer none --save '%s'",
             command_folder);
    FILE *old = fopen(path, "w");
    if (!expect(old, "no file")) return;
    fputs("old arrays", old);
    fclose(old);
    const said *it = command("ulimit -f 8;", line);
    expect(it->status == 1 && one_line(it->err) && strstr(it->err, "mha: bench: small_512: cannot save its arrays: ") &&
               strstr(it->err, "File too large"),
           "exit %d: %s", it->status, it->err);
    slurp(path, text, sizeof text);
    expect(!strcmp(text, "old arrays"), "the file is '%s' now", text);
    unlink(path);
}

static void expect_text(const nn_safetensors *file, const char *key, const char *want)
{
    const char *got = nn_safetensors_metadata(file, key);
    expect(got && strcmp(got, want) == 0, "%s is '%s'", key, got ? got : "missing");
}

/* The saved result is that of the saved factors. */
TEST(a_matrix_product_is_measured_and_saved)
{
    const said *it = bench("--shape small_512 --threads 1 --peer loop");
    expect_sound(it->out, 1e-5);
    expect_share(it->out, "gflops", "peak_gflops", "percent_of_peak");
    expect_word(it->out, "shape", "small_512");
    expect_word(it->out, "dtype", "float32");
    expect_word(it->out, "pass", "gemm");
    expect_word(it->out, "threads", "1");
    expect_word(it->out, "peer", "loop");
    expect(number(it->out, "peer_ms") > 0 && number(it->out, "peer_error") < 1e-5, "%s", it->out);
    nn_safetensors *file = saved("gemm-small_512-f32.safetensors");
    if (!file) return;
    const nn_safetensors_tensor *a = nn_safetensors_find(file, "a"), *b = nn_safetensors_find(file, "b"),
                                *c = nn_safetensors_find(file, "c");
    if (expect(a && b && c && a->count == 20 * 512 && b->count == 512 * 512 && c->count == 20 * 512, "sizes")) {
        double sum = 0;
        for (int k = 0; k < 512; k++)
            sum += (double)((const float *)a->data)[7 * 512 + k] * (double)((const float *)b->data)[k * 512 + 300];
        double got = (double)((const float *)c->data)[7 * 512 + 300];
        expect(fabs(got - sum) < 1e-3, "c[7,300] is %g, not %g", got, sum);
    }
    expect_text(file, "pass", "gemm");
    expect_text(file, "shape", "small_512");
    expect_text(file, "dtype", "f32");
    expect_text(file, "threads", "1");
    nn_safetensors_free(file);
}

TEST(a_backward_pass_is_measured_and_saved)
{
    static const char *const names[] = {"q", "k", "v", "out", "dout", "dq", "dk", "dv"};
    const said *it = bench("--shape vit_b16 --pass backward --dtype bf16 --threads 2 --peer loop");
    expect_sound(it->out, 4e-2);
    expect_word(it->out, "dtype", "bfloat16");
    expect_word(it->out, "threads", "2");
    expect(number(it->out, "peer_error") < 4e-2, "%s", it->out);
    nn_safetensors *file = saved("backward-vit_b16-bf16.safetensors");
    if (!file) return;
    expect(nn_safetensors_count(file) == 8, "%zu tensors", nn_safetensors_count(file));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const nn_safetensors_tensor *t = nn_safetensors_find(file, names[i]);
        expect(t && t->dtype == NN_SAFETENSORS_BF16 && t->rank == 4 && t->shape[1] == 12 && t->shape[2] == 197, "%s",
               names[i]);
    }
    expect_text(file, "causal", "0");
    nn_safetensors_free(file);
}

TEST(a_step_of_a_decoder_is_measured_by_what_it_reads)
{
    const said *it = bench("--shape decode_gqa_4k --threads 1 --peer none");
    expect_sound(it->out, 1e-5);
    expect_word(it->out, "pass", "decode");
    expect_word(it->out, "peer_ms", "null");
    expect(!*json_field(it->out, "peer") && !*json_field(it->out, "percent_of_peak"), "%s", it->out);
    expect_share(it->out, "gb_per_s", "bandwidth_gb_per_s", "percent_of_bandwidth");
    nn_safetensors *file = saved("decode-decode_gqa_4k-f32.safetensors");
    if (!file) return;
    const nn_safetensors_tensor *q = nn_safetensors_find(file, "q"), *k = nn_safetensors_find(file, "k");
    expect(q && k && q->shape[1] == 32 && q->shape[2] == 1 && k->shape[1] == 8 && k->shape[2] == 4096, "sizes");
    nn_safetensors_free(file);
}

/* Images a second, and a file that another program can train from: a model, its batch, and the losses of three steps,
 * which fall. One batch of nine is two slabs. */
TEST(a_step_of_training_is_measured_and_saved)
{
    const said *it = bench("--pass train --batch 9 --threads 2 --peer none");
    expect_sound(it->out, 1e-5);
    expect_word(it->out, "pass", "train");
    expect_word(it->out, "shape", "vit_digits");
    double want = 9e3 / number(it->out, "ms_median"), got = number(it->out, "images_per_s");
    expect(fabs(got - want) < 1e-4 * want, "%g images/s, not %g", got, want);
    expect_share(it->out, "gflops", "peak_gflops", "percent_of_peak");
    nn_safetensors *file = saved("train-vit_digits-f32.safetensors");
    if (!file) return;
    nn_description config;
    char error[240] = "";
    expect(nn_vit_read_config(&config, file, "saved", error, sizeof error), "%s", error);
    expect(config.encoder.blocks.depth == 6 && config.encoder.blocks.width == 64 && config.encoder.input.patch == 4,
           "another model");
    const nn_safetensors_tensor *images = nn_safetensors_find(file, "checkpoint.images"),
                                *losses = nn_safetensors_find(file, "checkpoint.losses");
    expect(images && images->dtype == NN_SAFETENSORS_U8 && images->count == 9 * 28 * 28, "images");
    if (expect(losses && losses->count == 3, "losses")) {
        const float *loss = losses->data;
        expect(loss[0] > 1.5f && loss[0] < 4 && loss[2] < loss[1] && loss[1] < loss[0], "losses of %g, %g, %g",
               (double)loss[0], (double)loss[1], (double)loss[2]);
    }
    expect_text(file, "pass", "train");
    expect_text(file, "rate", "0.001");
    expect_text(file, "threads", "2");
    nn_safetensors_free(file);
}

TEST(a_look_at_images_is_measured_and_saved)
{
    const said *it = bench("--pass infer --dtype bf16 --batch 9 --threads 1 --peer none");
    expect_sound(it->out, 4e-2);
    expect_word(it->out, "pass", "infer");
    expect_word(it->out, "dtype", "bfloat16");
    expect(number(it->out, "images_per_s") > 0, "%s", it->out);
    nn_safetensors *file = saved("infer-vit_digits-bf16.safetensors");
    if (!file) return;
    const nn_safetensors_tensor *logits = nn_safetensors_find(file, "checkpoint.logits");
    expect(logits && logits->rank == 2 && logits->shape[0] == 9 && logits->shape[1] == 10, "logits");
    expect_text(file, "dtype", "bf16");
    nn_safetensors_free(file);
}

/* ---- What people read -------------------------------------------------------------------------------------------- */

/* ---- Language models --------------------------------------------------------------------------------------------- */

/* Small ones, described as the large ones are. */
static const bench_language small_languages[] = {
    {"gpt2", "",
     "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":2,\"n_embd\":48,\"n_head\":4,"
     "\"vocab_size\":97,\"n_positions\":40}"},
    {"llama", "",
     "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":48,"
     "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"intermediate_size\":80,\"vocab_size\":97,"
     "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}"},
};

static mha_context *two_threads(void)
{
    mha_context_options how = MHA_CONTEXT_DEFAULTS;
    mha_context *ctx = NULL;
    how.threads = 2;
    expect(!mha_context_create(&ctx, &how), "no context");
    return ctx;
}

static bench_result run_language(const bench_language *shape, bench_setting set, bool prompt)
{
    char error[200] = "";
    bench_result result = {0};
    bool done = prompt ? bench_prompt(&result, &set, shape, error) : bench_generate(&result, &set, shape, error);
    expect(done, "%s: %s", shape->name, error);
    expect(result.max_error <= bench_tolerance(set.compute), "%s: a new token is off by %g", shape->name,
           result.max_error);
    expect(result.tokens > 0 && result.tokens_best >= result.tokens, "%g tokens/s, %g at best", result.tokens,
           result.tokens_best);
    return result;
}

TEST(language_models_are_measured_in_every_type)
{
    static const mha_type types[] = {MHA_FLOAT32, MHA_BFLOAT16, MHA_FLOAT16};
    bench_setting set = {.ctx = two_threads(), .prompt = 21, .tokens = 5};
    for (int shape = 0; shape < 2; shape++)
        for (int n = 0; n < 4; n++) {
            set.type = types[n % 3];
            set.compute = n == 3 ? MHA_BFLOAT16 : MHA_FLOAT32;
            bench_result prompt = run_language(&small_languages[shape], set, true);
            bench_result tokens = run_language(&small_languages[shape], set, false);
            expect(prompt.gflops > 0 && !(prompt.gbytes > 0), "prompt: %g GFLOP/s", prompt.gflops);
            expect(tokens.gbytes > 0 && tokens.read_gbytes > 0, "new tokens: %g GB/s, read %g", tokens.gbytes,
                   tokens.read_gbytes);
        }
    mha_context_free(set.ctx);
}

TEST(a_language_model_that_is_saved_is_a_model)
{
    char error[300] = "", folder[] = "/tmp/bench-XXXXXX", path[64];
    if (!expect(mkdtemp(folder), "no folder")) return;
    bench_setting set = {
        .ctx = two_threads(), .prompt = 21, .tokens = 5, .save = folder, .type = MHA_BFLOAT16, .compute = MHA_FLOAT32};
    run_language(&small_languages[0], set, true);
    snprintf(path, sizeof path, "%s/prompt-gpt2-bf16.safetensors", folder);
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (expect(file, "%s", error)) {
        const nn_safetensors_tensor *t = nn_safetensors_find(file, "transformer.h.1.attn.c_attn.weight");
        expect(t && t->dtype == NN_SAFETENSORS_BF16 && t->shape[0] == 48 && t->shape[1] == 144, "c_attn of block 1");
        t = nn_safetensors_find(file, "transformer.ln_f.weight");
        expect(t && t->dtype == NN_SAFETENSORS_F32 && ((const float *)t->data)[47] == 1, "the gains of the last norm");
        t = nn_safetensors_find(file, "bench.logits");
        expect(t && t->shape[0] == 97, "logits of the prompt");
        expect(nn_safetensors_find(file, "bench.prompt"), "the prompt");
        expect(nn_safetensors_metadata(file, "config"), "its config");
        nn_safetensors_free(file);
    }
    remove(path);
    rmdir(folder);
    mha_context_free(set.ctx);
}

TEST(a_text_beyond_the_positions_is_refused)
{
    char error[200] = "";
    bench_result result;
    bench_setting set = {.ctx = two_threads(), .prompt = 39, .tokens = 2};
    expect(!bench_prompt(&result, &set, &small_languages[0], error) && strstr(error, "40 positions"), "%s", error);
    mha_context_free(set.ctx);
}

TEST(the_table_fits_the_screen_and_names_the_peer)
{
    const said *it = command("", "bench --shape vit_mnist --pass forward --threads 1 --seconds 0 --peer loop");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    expect(widest_line(it->out) <= 80, "a line of %zu columns", widest_line(it->out));
    expect(strstr(it->out, "loop") && strstr(it->out, "\nvit_mnist      forward"), "%s", it->out);
    it = command("", "bench --shape vit_digits --batch 1 --threads 1 --seconds 0");
    expect(it->status == 0 && !*it->err && widest_line(it->out) <= 80, "exit %d: %s", it->status, it->err);
    expect(strstr(it->out, "\nvit_digits     train") && strstr(it->out, " img/s "), "%s", it->out);
}

/* Through every way of the unfused peer: causal, one row, rows that share keys, backward. */
TEST(openblas_agrees)
{
    static const char *const args[] = {"--shape vit_mnist --pass backward", "--shape gpt2_small --pass forward",
                                       "--pass decode", "--shape small_512"};
    const said *it = command("", "bench --peer openblas --list");
    if (it->status == 2 && strstr(it->err, "is not installed")) {
        not_given("OpenBLAS is not installed");
        return;
    }
    for (size_t i = 0; i < sizeof args / sizeof *args; i += (size_t)sample_size()) {
        char line[200];
        snprintf(line, sizeof line, "bench --peer openblas --threads 2 --seconds 0 --json %s", args[i]);
        it = command("", line);
        expect(it->status == 0 && !*it->err, "%s: exit %d, %s", line, it->status, it->err);
        expect(strstr(it->out, "\"peer\": \"openblas\"") && !strstr(it->out, "\"peer_ms\": null"), "%s", it->out);
    }
}

/* ---- Scaling ----------------------------------------------------------------------------------------------------- */

TEST(exponents_are_those_of_powers)
{
    double x[] = {64, 128, 256, 512}, y[4];
    for (double power = -1; power <= 3; power += 0.5) {
        for (int n = 0; n < 4; n++) y[n] = 7 * pow(x[n], power);
        expect(fabs(bench_exponent(x, y, 4) - power) < 1e-12, "x^%g: %g", power, bench_exponent(x, y, 4));
        y[1] = NAN; /* not measured */
        expect(fabs(bench_exponent(x, y, 4) - power) < 1e-12, "x^%g without a point", power);
    }
    expect(isnan(bench_exponent(x, y, 1)), "a power through one point");
}

/* Memory that is measured has the sizes that the two ways must have: none of T x T, and all of it. */
TEST(scaling_is_measured_and_drawn)
{
    char line[400], chart[1 << 15], path[300];
    snprintf(path, sizeof path, "%s/scaling.svg", command_folder);
    snprintf(line, sizeof line, "bench --pass scaling --length 512 --seconds 0.001 --peer loop --json -o '%s'", path);
    const said *it = command("", line);
    if (!expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err)) return;
    static const char *const ways[] = {"fused", "one_by_one", "unfused"};
    const char *at = it->out;
    for (int n = 0; n < 4; n++) /* T of 64, 128, 256 and 512 */
        for (int way = 0; way < 3; way++, at += strcspn(at, "\n") + 1) {
            char row[600];
            snprintf(row, sizeof row, "%.*s", (int)strcspn(at, "\n"), at);
            double T = number(row, "T"), extra = number(row, "extra_bytes");
            expect(T == 64 << n && number(row, "H") == 8 && number(row, "D") == 64, "%s", row);
            expect_word(row, "way", ways[way]);
            expect_word(row, "axis", "T");
            expect_word(row, "left_out", "false");
            expect(number(row, "ms") > 0 && number(row, "max_error") <= 1e-4, "%s", row);
            expect(number(row, "array_bytes") == 4 * 4 * 8 * 64 * T, "%s", row);
            if (way == 2) expect(extra >= 4 * T * T, "%s", row);
            else expect(extra > 0 && (T < 512 || extra < 8 * 4 * T * T), "%s", row);
        }
    for (int way = 0; way < 3; way++, at += strcspn(at, "\n") + 1) {
        char row[600];
        snprintf(row, sizeof row, "%.*s", (int)strcspn(at, "\n"), at);
        expect_word(row, "exponent_of", "T");
        expect_word(row, "way", ways[way]);
        expect_word(row, "time_exponent", "null"); /* one size from 512 on */
    }
    expect(!*at, "more: %s", at);
    slurp(path, chart, sizeof chart);
    expect(strncmp(chart, "<svg ", 5) == 0 && strstr(chart, "</svg>\n") && strstr(chart, "Time over T") &&
               !strstr(chart, "nan"),
           "%s", chart);
    unlink(path);
    it = command("", "bench --pass scaling --length 128 --seconds 0.001 --peer none -o /no/such/folder/x.svg");
    expect(it->status == 1 && one_line(it->err) && strstr(it->err, "/no/such/folder"), "exit %d: %s", it->status,
           it->err);
    expect(widest_line(it->out) <= 80, "a line of %zu columns", widest_line(it->out));
}
