/* mha embed: vectors are the mean of the last hidden states or the row of the first token, the same alone and in a batch; the
 * answers of MiniLM; and every wrong use is one line. */
#include "cli/words.h"

#include <math.h>

static const char *model(bool head)
{
    static char path[2][256];
    if (!*path[head]) snprintf(path[head], sizeof path[0], "%s", words_make(head ? "masked" : "bare", head));
    return path[head];
}

static const said *embed(bool head, const char *args)
{
    char line[1500];
    snprintf(line, sizeof line, "embed %s %s", model(head), args);
    return command("LC_ALL=C", line);
}

/* The numbers of text n of a JSON answer; returns how many tokens it has. */
static int values_of(const said *it, int n, double *values, int most, int *count)
{
    static char object[1 << 14];
    snprintf(object, sizeof object, "%s", json_element(json_field(it->out, "embeddings"), n));
    *count = words_numbers(json_field(object, "values"), values, most);
    return (int)strtol(json_field(object, "tokens"), NULL, 10);
}

/* [CLS] the cat sat on the mat [SEP] */
static const int32_t sentence[] = {2, 5, 6, 8, 9, 5, 10, 3};
enum { TOKENS = 8 };

static void expect_pooled(bool head, const char *args, bool first, bool raw)
{
    static float logits[TOKENS * WORDS], hidden[2 * TOKENS * WORDS_WIDTH];
    char line[300];
    double got[WORDS_WIDTH], want[WORDS_WIDTH], square = 0;
    int count;
    words_run(model(head), sentence, TOKENS, logits, WORDS, hidden, 2, WORDS_WIDTH);
    const float *rows = hidden + TOKENS * WORDS_WIDTH;
    for (int i = 0; i < WORDS_WIDTH; i++) {
        want[i] = first ? (double)rows[i] : 0;
        for (int t = 0; !first && t < TOKENS; t++) want[i] += (double)rows[t * WORDS_WIDTH + i] / TOKENS;
        square += want[i] * want[i];
    }
    snprintf(line, sizeof line, "'the cat sat on the mat' --json %s", args);
    const said *it = embed(head, line);
    int tokens = values_of(it, 0, got, WORDS_WIDTH, &count);
    expect(it->status == 0 && tokens == TOKENS && count == WORDS_WIDTH, "%d tokens, %d numbers: %s", tokens, count,
           it->err);
    for (int i = 0; i < count; i++) {
        double value = raw ? want[i] : want[i] / sqrt(square);
        expect(fabs(got[i] - value) < 1e-6, "%s, number %d: %g, not %g", args, i, got[i], value);
    }
}

TEST(vectors_are_pooled_hidden_states)
{
    for (int head = 0; head < 2; head++) {
        expect_pooled(head, "", false, false);
        expect_pooled(head, "--pool mean --raw", false, true);
        expect_pooled(head, "--pool first", true, false);
        expect_pooled(head, "--pool=first --raw", true, true);
    }
}

/* The vector of a text under `options`, which has so many numbers and tokens. */
static void vector_of(const char *folder, const char *options, double *to, int numbers, int tokens)
{
    char line[1500];
    int count;
    snprintf(line, sizeof line, "embed %s --json %s", folder, options);
    const said *it = command("LC_ALL=C", line);
    int found = values_of(it, 0, to, 2 * WORDS_WIDTH, &count);
    expect(it->status == 0 && count == numbers && (!tokens || found == tokens), "%s: %d numbers of %d tokens: %s",
           options, count, found, it->err);
}

TEST(every_pool_is_a_function_of_the_rows)
{
    static float logits[TOKENS * WORDS], hidden[2 * TOKENS * WORDS_WIDTH];
    static const char *const pools[] = {"last", "max", "root", "weighted", "first+max"};
    double got[2 * WORDS_WIDTH];
    words_run(model(false), sentence, TOKENS, logits, WORDS, hidden, 2, WORDS_WIDTH);
    const float *rows = hidden + TOKENS * WORDS_WIDTH;
    for (int n = 0; n < 5; n++) {
        char options[200];
        snprintf(options, sizeof options, "'the cat sat on the mat' --raw --pool %s", pools[n]);
        vector_of(model(false), options, got, n == 4 ? 2 * WORDS_WIDTH : WORDS_WIDTH, TOKENS);
        for (int i = 0; i < WORDS_WIDTH; i++) {
            double sum = 0, weighted = 0, most = (double)rows[i];
            for (int t = 0; t < TOKENS; t++) {
                double x = (double)rows[t * WORDS_WIDTH + i];
                sum += x, weighted += (t + 1) * x;
                if (x > most) most = x;
            }
            const double want[] = {(double)rows[(TOKENS - 1) * WORDS_WIDTH + i], most, sum / sqrt(TOKENS),
                                   weighted / (TOKENS * (TOKENS + 1) / 2), (double)rows[i]};
            expect(fabs(got[i] - want[n]) < 1e-6, "%s: number %d is %g, not %g", pools[n], i, got[i], want[n]);
            if (n == 4) expect(fabs(got[WORDS_WIDTH + i] - most) < 1e-6, "the largest number of column %d", i);
        }
    }
}

/* ---- Folders of sentence-transformers ---------------------------------------------------------------------------- */

static const char transformer[] =
    "{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": "
    "\"sentence_transformers.models.Transformer\"}, {\"idx\": 1, \"name\": \"1\", \"path\": "
    "\"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}";
static const char dense[] = ", {\"path\": \"2_Dense\", \"type\": \"sentence_transformers.models.Dense\"}";
static const char normalize[] = ", {\"path\": \"3_Normalize\", \"type\": \"sentence_transformers.models.Normalize\"}";

static void write_file(const char *folder, const char *sub, const char *name, const char *text)
{
    char path[300], file[80];
    snprintf(path, sizeof path, "%s/%s", folder, sub);
    mkdir(path, 0700);
    snprintf(file, sizeof file, "%s/%s", sub, name);
    letters_file(folder, file, text);
}

/* modules.json with what follows transformer and pooling. */
static void write_modules(const char *folder, const char *more)
{
    char text[1200];
    snprintf(text, sizeof text, "[%s%s]", transformer, more);
    letters_file(folder, "modules.json", text);
}

/* A folder that has the mean and is not normalised. */
static const char *followed(const char *name)
{
    static char folder[256];
    snprintf(folder, sizeof folder, "%s", words_make(name, false));
    write_modules(folder, "");
    write_file(folder, "1_Pooling", "config.json",
               "{\"word_embedding_dimension\": 16, \"pooling_mode_mean_tokens\": true}");
    return folder;
}

TEST(modules_say_how_vectors_are_made)
{
    double mean[2 * WORDS_WIDTH], got[2 * WORDS_WIDTH], want[3];
    float weight[3 * 2 * WORDS_WIDTH], bias[3] = {0.5f, -0.25f, 0};
    char path[300], error[300] = "";
    const char *folder = followed("dense");
    vector_of(model(false), "'the cat sat on the mat' --raw --pool max+mean", mean, 2 * WORDS_WIDTH, TOKENS);
    vector_of(folder, "'the cat sat on the mat'", got, WORDS_WIDTH, TOKENS);
    for (int i = 0; i < WORDS_WIDTH; i++) expect(fabs(got[i] - mean[WORDS_WIDTH + i]) < 1e-6, "not the mean");
    write_file(
        folder, "1_Pooling", "config.json",
        "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_max_tokens\": true, \"pooling_mode_cls_token\": false}");
    write_file(folder, "2_Dense", "config.json",
               "{\"in_features\": 32, \"out_features\": 3, \"bias\": true, \"activation_function\": "
               "\"torch.nn.modules.activation.Tanh\"}");
    for (int i = 0; i < 6 * WORDS_WIDTH; i++) weight[i] = (float)((i * 7) % 11 - 5) / 16;
    nn_safetensors_item items[] = {
        nn_safetensors_item_dense("linear.weight", NN_SAFETENSORS_F32, 2, (const int64_t[]){3, 2 * WORDS_WIDTH},
                                  weight),
        nn_safetensors_item_dense("linear.bias", NN_SAFETENSORS_F32, 1, (const int64_t[]){3}, bias)};
    snprintf(path, sizeof path, "%s/2_Dense/model.safetensors", folder);
    expect(!nn_safetensors_write(path, items, 2, NULL, 0, error, sizeof error), "%s", error);
    for (int normal = 0; normal < 2; normal++) {
        char modules[400];
        double square = 0;
        snprintf(modules, sizeof modules, "%s%s", dense, normal ? normalize : "");
        write_modules(folder, modules);
        vector_of(folder, "'the cat sat on the mat'", got, 3, TOKENS);
        for (int i = 0; i < 3; i++) {
            want[i] = (double)bias[i];
            for (int k = 0; k < 2 * WORDS_WIDTH; k++) want[i] += (double)weight[i * 2 * WORDS_WIDTH + k] * mean[k];
            want[i] = tanh(want[i]);
            square += want[i] * want[i];
        }
        for (int i = 0; i < 3; i++)
            expect(fabs(got[i] - want[i] / (normal ? sqrt(square) : 1)) < 1e-6, "number %d is %g", i, got[i]);
    }
    vector_of(folder, "'the cat sat on the mat' --raw", got, 3, TOKENS);
    for (int i = 0; i < 3; i++) expect(fabs(got[i] - want[i]) < 1e-6, "number %d is %g", i, got[i]);
}

TEST(folders_say_how_texts_are_read)
{
    double one[2 * WORDS_WIDTH], other[2 * WORDS_WIDTH];
    const char *folder = followed("reading");
    letters_file(folder, "tokenizer_config.json", "{\"do_lower_case\": false}");
    vector_of(folder, "'the cat'", one, WORDS_WIDTH, 4);
    vector_of(folder, "'The CAT'", other, WORDS_WIDTH, 4);
    expect(memcmp(one, other, sizeof *one * WORDS_WIDTH) != 0, "The CAT is the cat");
    letters_file(folder, "sentence_bert_config.json", "{\"max_seq_length\": 5, \"do_lower_case\": true}");
    vector_of(folder, "'The CAT'", other, WORDS_WIDTH, 4);
    expect(!memcmp(one, other, sizeof *one * WORDS_WIDTH), "The CAT is not the cat");
    vector_of(folder, "'the cat sat'", one, WORDS_WIDTH, 5);
    vector_of(folder, "'the cat sat on the mat'", other, WORDS_WIDTH, 5);
    expect(!memcmp(one, other, sizeof *one * WORDS_WIDTH), "a long text is not cut");
    letters_file(folder, "tokenizer_config.json", "{\"do_lower_case\": false, \"truncation_side\": \"left\"}");
    vector_of(folder, "'dog ran the cat sat'", other, WORDS_WIDTH, 5);
    expect(!memcmp(one, other, sizeof *one * WORDS_WIDTH), "a long text is not cut at its beginning");
}

TEST(prompts_are_put_before_texts)
{
    double one[2 * WORDS_WIDTH], other[2 * WORDS_WIDTH];
    const char *folder = followed("prompts");
    letters_file(
        folder, "config_sentence_transformers.json",
        "{\"prompts\": {\"query\": \"the dog \", \"mat\": \"on the mat \"}, \"default_prompt_name\": \"query\"}");
    vector_of(model(false), "'the dog ran' --raw", one, WORDS_WIDTH, 5);
    vector_of(folder, "ran", other, WORDS_WIDTH, 5);
    expect(!memcmp(one, other, sizeof *one * WORDS_WIDTH), "the default prompt");
    vector_of(model(false), "'on the mat ran' --raw", one, WORDS_WIDTH, 6);
    vector_of(folder, "ran --prompt mat", other, WORDS_WIDTH, 6);
    expect(!memcmp(one, other, sizeof *one * WORDS_WIDTH), "a named prompt");
    write_file(folder, "1_Pooling", "config.json", "{\"pooling_mode\": \"cls\", \"include_prompt\": false}");
    vector_of(folder, "ran", one, WORDS_WIDTH, 5);
    write_file(folder, "1_Pooling", "config.json",
               "{\"pooling_mode\": [\"mean\", \"lasttoken\"], \"include_prompt\": false}");
    vector_of(folder, "ran", other, 2 * WORDS_WIDTH, 5);
    for (int i = 0; i < WORDS_WIDTH; i++) /* of two rows, "ran" and [SEP] */
        expect(fabs(2 * other[i] - one[i] - other[WORDS_WIDTH + i]) < 1e-6, "number %d of the mean", i);
    char line[400];
    snprintf(line, sizeof line, "embed %s ran --prompt dog", folder);
    words_refused(line, "embed: --prompt: the folder has none with the name \"dog\"; it has query, mat");
}

TEST(what_cannot_be_followed_is_refused)
{
    static const char *const cases[][4] = {
        {".", "modules.json", "{}", "modules.json: not a list of modules"},
        {".", "modules.json", "[]", "modules.json: has 0 modules"},
        {".", "modules.json", "[{}, {}]", "modules.json: module 0 has no type"},
        {".", "modules.json", "[{\"type\": \"custom.Transformer\", \"path\": \"\"}, {}]", "module 0 is Transformer; a"},
        {".", "modules.json", "[", "modules.json: "},
        {"1_Pooling", "config.json", "{\"pooling_mode\": \"best\"}", "1_Pooling/config.json: pooling_mode has a mode"},
        {"1_Pooling", "config.json", "{\"include_prompt\": 3}", "include_prompt must be true or false"},
        {".", "sentence_bert_config.json", "{\"max_seq_length\": -1}", "max_seq_length must be a whole number"},
        {".", "sentence_bert_config.json", "{\"transformer_task\": \"fill-mask\"}",
         "transformer_task is \"fill-mask\", which"},
        {".", "sentence_bert_config.json", "{\"model_args\": {\"layers\": 3}}", "model_args has arguments"},
        {".", "config_sentence_transformers.json", "{\"prompts\": [1]}", "prompts must be an object of texts"},
        {".", "config_sentence_transformers.json", "{\"default_prompt_name\": \"a\"}", "is the name of no prompt"},
        {".", "config_sentence_transformers.json", "{\"model_type\": \"SparseEncoder\"}",
         "model_type is \"SparseEncoder\""},
        {"2_Dense", "config.json", "{\"in_features\": 16, \"out_features\": 2, \"activation_function\": \"os.system\"}",
         "2_Dense/config.json: the activation_function is not supported"},
        {"2_Dense", "config.json", "{\"in_features\": 16}", "has no in_features or no out_features"},
        {"2_Dense", "config.json", "{\"in_features\": 16, \"out_features\": 2}",
         "2_Dense/model.safetensors: is missing"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char line[400], name[32];
        snprintf(name, sizeof name, "refused%zu", n);
        const char *folder = followed(name);
        if (strcmp(cases[n][0], "2_Dense") == 0) write_modules(folder, dense);
        write_file(folder, cases[n][0], cases[n][1], cases[n][2]);
        snprintf(line, sizeof line, "embed %s cat", folder);
        words_refused(line, cases[n][3]);
    }
}

TEST(a_text_has_the_same_vector_alone_and_in_a_batch)
{
    static const char *const all[] = {"a dog", "the cats saw the dog and ran", "mat"};
    double alone[3][WORDS_WIDTH], together[WORDS_WIDTH];
    char line[300];
    int count;
    for (int n = 0; n < 3; n++) {
        snprintf(line, sizeof line, "'%s' --json", all[n]);
        values_of(embed(false, line), 0, alone[n], WORDS_WIDTH, &count);
    }
    letters_file(command_folder, "lines.txt", "the cats saw the dog and ran\n\nmat\r\n");
    snprintf(line, sizeof line, "'a dog' --lines %s --json", in_folder("lines.txt"));
    const said *it = embed(false, line);
    for (int n = 0; n < 3; n++) {
        values_of(it, n, together, WORDS_WIDTH, &count);
        expect(count == WORDS_WIDTH && !memcmp(together, alone[n], sizeof together), "text %d differs", n);
    }
}

/* What is dropped is the end of the text, not [SEP]. */
TEST(long_texts_are_truncated_on_request)
{
    double cut[WORDS_WIDTH], fits[WORDS_WIDTH];
    int count;
    int tokens = values_of(embed(false, "'a b c d e the cat sat on the mat and' --truncate --json"), 0, cut,
                           WORDS_WIDTH, &count);
    expect(tokens == WORDS_POSITIONS, "%d tokens", tokens);
    values_of(embed(false, "'a b c d e the cat sat on the' --json"), 0, fits, WORDS_WIDTH, &count);
    expect(!memcmp(cut, fits, sizeof cut), "the truncated text has another vector");
}

TEST(the_terminal_shows_numbers_and_cosines)
{
    const said *it = embed(false, "'the cat' 'the dog' 'the cat'");
    expect(it->status == 0 && !strncmp(it->out, "3 texts, 16 numbers each\n", 25), "%s%s", it->out, it->err);
    const char *table = strstr(it->out, "\ncosines\n");
    expect(table && strstr(table, "    1  1.000") && strstr(table, "  1.000\n    2 "), "%s", it->out);
    expect(widest_line(it->out) <= 80, "%s", it->out);
    it = embed(false, "'the cat'");
    expect(it->status == 0 && !strstr(it->out, "cosines"), "%s", it->out);
}

TEST(json_has_the_documented_keys)
{
    static const char *const keys[] = {
        "model", "pool", "prompt", "normalised", "width", "tokens", "seconds", "tokens_per_second", "embeddings"};
    const said *it = embed(true, "cat 'sat \"on\"' --json --threads 1 --dtype bf16");
    expect(it->status == 0 && !*it->err, "%s", it->err);
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        expect(*json_field(it->out, keys[n]) || strcmp(keys[n], "prompt") == 0, "no key %s", keys[n]);
    expect(strstr(it->out, "\n  \"prompt\": \"\",\n") != NULL, "%.300s", it->out);
    it = command("", "embed --help");
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        expect(strstr(it->out, keys[n]) != NULL, "no %s in the help", keys[n]);
}

TEST(nothing_leaks)
{
    char line[600];
    snprintf(line, sizeof line, "embed %s cat dog --json", model(true));
    expect(command("", line)->status == 0, "a run");
    snprintf(line, sizeof line, "embed %s 'a b c d e f g h i j k l'", model(true));
    expect(command("", line)->status == 2, "a long text");
}

TEST(wrong_use_is_one_line)
{
    char line[900];
    const char *const cases[][2] = {
        {"", "missing a text: TEXT or --lines FILE"},
        {"cat --pool best", "embed: --pool: must be first, last, mean, max, root or weighted"},
        {"cat --pool mean+", "embed: --pool: must be first, last, mean, max, root or weighted"},
        {"cat --prompt query", "embed: --prompt: the folder has none with the name \"query\", nor any other"},
        {"cat --lines", "--lines needs a value"},
        {"--lines /nowhere", "cannot open '/nowhere'"},
        {"cat --threads 0", "--threads"},
        {"cat --dtype f8", "--dtype"},
        {"cat --tokenizer /nowhere", "/nowhere"},
        {"cat --tokenizer ''", "--tokenizer needs a value"},
        {"cat --pol first", "did you mean '--pool'?"},
        {"cat \"$(printf 'a\\377')\"", "text 2: "},
        {"dog 'a b c d e the cat sat on the mat'", "text 2: has 13 tokens, and 12 fit the model; --truncate"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        snprintf(line, sizeof line, "embed %s %s", model(false), cases[n][0]);
        words_refused(line, cases[n][1]);
    }
    letters_file(command_folder, "empty.txt", "\n\n");
    snprintf(line, sizeof line, "embed %s --lines %s", model(false), in_folder("empty.txt"));
    words_refused(line, "has no text; it needs one on each line");
    snprintf(line, sizeof line, "embed %s cat --tokenizer %s", model(false), letters_make("letters", NULL));
    words_refused(line, "embed: the tokenizer has 30 tokens, but the model 16; is it that of the model?");
    words_refused("embed", "missing MODEL");
    words_refused("embed /nowhere cat", "/nowhere");
}

/* ---- MiniLM ----------------------------------------------------------------------------------------------------- */

enum { SENTENCES = 8, WIDE = 384 };

TEST(vectors_of_minilm)
{
    static char answers[1 << 16], object[1 << 14], line[3000];
    static double values[SENTENCES][WIDE];
    const char *models = getenv("MHA_MODELS"), *folder = getenv("MHA_MINILM");
    snprintf(line, sizeof line, "%s/minilm.expected.json", models ? models : "");
    slurp(line, answers, sizeof answers);
    if (!folder || !*answers) {
        not_given("MHA_MINILM names no model, or MHA_MODELS no folder with minilm.expected.json");
        return;
    }
    FILE *file = fopen(in_folder("sentences.txt"), "w");
    int count = 0;
    for (const char *text; count < SENTENCES; count++) {
        snprintf(object, sizeof object, "%s", json_element(json_field(answers, "sentences"), count));
        if (!*object || !*(text = json_field(object, "text"))) break;
        fprintf(file, "%s\n", text);
    }
    fclose(file);
    snprintf(line, sizeof line, "embed '%s' --lines %s --json", folder, in_folder("sentences.txt"));
    const said *it = command("", line);
    expect(it->status == 0 && count >= 2, "%d sentences: %s", count, it->err);
    for (int n = 0; n < count; n++) {
        double start[16];
        int wide, tokens = values_of(it, n, values[n], WIDE, &wide);
        snprintf(object, sizeof object, "%s", json_element(json_field(answers, "sentences"), n));
        int known = words_numbers(json_field(object, "embedding_start"), start, 16);
        double ids[64];
        int length = words_numbers(json_field(object, "ids"), ids, 64);
        expect(wide == WIDE && known > 0 && tokens == length, "sentence %d: %d numbers, %d tokens", n, wide, tokens);
        for (int i = 0; i < known; i++)
            expect(fabs(values[n][i] - start[i]) < 1e-3, "sentence %d, number %d: %g", n, i, values[n][i]);
    }
    for (int n = 0; n < count; n++) {
        double want[SENTENCES];
        int columns = words_numbers(json_element(json_field(answers, "cosine"), n), want, SENTENCES);
        expect(columns == count, "%d cosines", columns);
        for (int k = 0; k < columns; k++) {
            double cosine = 0;
            for (int i = 0; i < WIDE; i++) cosine += values[n][i] * values[k][i];
            expect(fabs(cosine - want[k]) < 1e-3, "cosine of %d and %d: %g, not %g", n, k, cosine, want[k]);
        }
    }
}
