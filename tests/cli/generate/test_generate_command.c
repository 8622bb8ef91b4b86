/* mha generate: texts stream and are the same alone and in a batch, JSON has what the help says, stop strings and tokens end
 * texts, and every wrong use is one line. */
#include "cli/generate/letters.h"

static const char *model(void)
{
    static char path[256];
    if (!*path)
        snprintf(path, sizeof path, "%s", letters_make("letters", "{\"eos_token_id\": 29, \"max_new_tokens\": 20}"));
    return path;
}

static const said *generate(const char *args)
{
    char line[1500];
    snprintf(line, sizeof line, "generate %s %s", model(), args);
    return command("LC_ALL=C", line);
}

/* The text of sequence n of a JSON answer. */
static const char *text_of(const said *it, int n)
{
    static char object[1 << 14], texts[4][4096];
    static int next;
    char *text = texts[next++ % 4];
    snprintf(object, sizeof object, "%s", json_element(json_field(it->out, "sequences"), n));
    snprintf(text, sizeof texts[0], "%.*s", (int)sizeof texts[0] - 1, json_field(object, "text"));
    return text;
}

TEST(a_text_goes_on)
{
    const said *it = generate("-p 'the cat'");
    expect(it->status == 0 && !strncmp(it->out, "the cat", 7) && strlen(it->out) > 10, "%s%s", it->out, it->err);
    expect(one_line(it->err) && strstr(it->err, "tokens/s") && !strncmp(it->err, "prompt: 7 tokens, ", 18), "%s",
           it->err);
    char whole[4096];
    snprintf(whole, sizeof whole, "%s", it->out + 7);
    it = generate("-p 'the cat' --new-only --quiet");
    expect(it->status == 0 && !strcmp(it->out, whole) && !*it->err, "%s, not %s", it->out, whole);
    it = generate("-p 'the cat' --greedy --tokens 4 --min-tokens 4 --new-only");
    expect(!strncmp(it->out, whole, strlen(it->out) - 2), "%s does not begin %s", it->out, whole);
}

TEST(texts_of_a_batch_are_those_of_prompts_alone)
{
    static const char *const prompts[] = {"a", "the cat sat on the mat", "xyz"};
    char args[400], alone[3][4096];
    for (int n = 0; n < 3; n++) {
        snprintf(args, sizeof args, "-p '%s' --json --temperature 1.5 --top-k 20 --seed 7 --min-tokens 20", prompts[n]);
        snprintf(alone[n], sizeof alone[n], "%s", text_of(generate(args), 0));
        expect(strlen(alone[n]) >= 10, "\"%s\"", alone[n]);
    }
    letters_file(command_folder, "prompts.txt", "the cat sat on the mat\n\nxyz\r\n");
    snprintf(args, sizeof args, "-p a --prompts %s --json --temperature 1.5 --top-k 20 --seed 7 --min-tokens 20",
             in_folder("prompts.txt"));
    const said *it = generate(args);
    for (int n = 0; n < 3; n++)
        expect(!strcmp(text_of(it, n), alone[n]), "\"%s\", alone \"%s\"", text_of(it, n), alone[n]);
    snprintf(args, sizeof args, "-p a --prompts %s --temperature 1.5 --top-k 20 --seed 7 --min-tokens 20",
             in_folder("prompts.txt"));
    it = generate(args);
    expect(strstr(it->out, "\n\n[2] the cat sat on the mat") && !strncmp(it->out, "[1] a", 5), "%s", it->out);
    snprintf(args, sizeof args, "-p a --json --temperature 1.5 --top-k 20 --seed 8 --min-tokens 20");
    expect(strcmp(text_of(generate(args), 0), alone[0]) != 0, "another seed gives the same text");
}

TEST(stop_strings_and_tokens)
{
    char args[200], before[4096], stop[3] = "";
    snprintf(before, sizeof before, "%s",
             text_of(generate("-p q --json --sample --seed 3 --min-tokens 20 --top-k 24"), 0));
    memcpy(stop, before + 6, 2);
    snprintf(args, sizeof args, "-p q --json --sample --seed 3 --min-tokens 20 --top-k 24 --stop '%s' --stop '!'",
             stop);
    *strstr(before, stop) = 0;
    const said *it = generate(args);
    expect(!strcmp(text_of(it, 0), before), "\"%s\", not \"%s\"", text_of(it, 0), before);
    expect(strstr(it->out, "\"finish\": \"stop\"") != NULL, "%s", it->out);
    it = generate(
        "--ids '1 2, 3' --json --sample --stop-token 0 --stop-token 1 --stop-token 2 --top-k 0 --temperature 9 "
        "--tokens 200");
    expect(strstr(it->out, "\"finish\": \"end\"") && strstr(it->out, "\"prompt_tokens\": [1, 2, 3]"), "%s", it->out);
}

TEST(a_seed_draws)
{
    char text[sizeof((said *)0)->out];
    snprintf(text, sizeof text, "%s", text_of(generate("-p q --json --sample --seed 3 --min-tokens 20"), 0));
    expect(strcmp(text, text_of(generate("-p q --json --seed 3 --min-tokens 20"), 0)) == 0, "--sample is implied");
    expect(strcmp(text, text_of(generate("-p q --json --min-tokens 20"), 0)) != 0, "the most likely tokens");
}

TEST(beam_search)
{
    const said *it = generate("-p abc --beams 3 --tokens 6 --json --length-penalty 0.5 --early-stopping yes");
    expect(it->status == 0 && strstr(it->out, "\"score\": -"), "%s%s", it->out, it->err);
}

TEST(json_has_the_documented_keys)
{
    static const char *const keys[] = {"model",
                                       "seed",
                                       "sequences",
                                       "prompt_tokens",
                                       "new_tokens",
                                       "prompt_seconds",
                                       "seconds",
                                       "prompt_tokens_per_second",
                                       "tokens_per_second"};
    const said *it = generate("-p ab --json --quiet --seed 5");
    expect(it->status == 0 && !*it->err, "%s", it->err);
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) expect(*json_field(it->out, keys[n]), "no key %s", keys[n]);
    expect(!strcmp(json_field(it->out, "seed"), "5") && !strcmp(json_field(it->out, "prompt_tokens"), "2"), "%s",
           it->out);
    it = command("", "generate --help");
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        expect(strstr(it->out, keys[n]) != NULL, "no %s in the help", keys[n]);
}

TEST(nothing_leaks)
{
    char line[600];
    snprintf(line, sizeof line, "generate %s -p ab -p b --sample --stop zz --json --beams 1 --quiet", model());
    const said *it = command("", line);
    expect(it->status == 0, "%s", it->err);
    snprintf(line, sizeof line, "generate %s -p ab --stop-token x", model());
    expect(command("", line)->status == 2, "a bad stop token");
}

/* ---- Wrong use -------------------------------------------------------------------------------------------------- */

static void expect_error(const char *args, const char *says)
{
    const said *it = generate(args);
    expect(it->status == 2 && one_line(it->err) && !*it->out, "%s: status %d, %s%s", args, it->status, it->out,
           it->err);
    expect(strstr(it->err, says) != NULL, "%s: \"%s\" does not say \"%s\"", args, it->err, says);
}

TEST(wrong_use_is_one_line)
{
    letters_file(command_folder, "empty.txt", "\n\n");
    char args[300];
    expect_error("", "missing a prompt: -p TEXT, --prompts FILE or --ids IDS");
    expect_error("-p a --ids 1", "--ids and -p exclude each other");
    expect_error("-p a --tokens 0", "--tokens");
    expect_error("-p a --temperature 0", "--temperature must be a number above 0, not '0'");
    expect_error("-p a --temperature nan", "--temperature");
    expect_error("-p a --top-p 1.5", "--top-p must be a number from 0 to 1");
    expect_error("-p a --min-p -1", "--min-p must be a number from 0 to 1");
    expect_error("-p a --top-k -1", "--top-k");
    expect_error("-p a --repetition-penalty 0", "--repetition-penalty must be a number above 0");
    expect_error("-p a --no-repeat-ngram x", "--no-repeat-ngram");
    expect_error("-p a --seed x", "--seed");
    expect_error("-p a --beams 0", "--beams");
    expect_error("-p a --beams 2 --sample", "beam search excludes");
    expect_error("-p a --beams 2 --stop x", "beam search ends at tokens");
    expect_error("-p a --greedy --top-k 5", "--greedy and --top-k exclude each other");
    expect_error("-p a --greedy --sample", "--greedy and --sample exclude each other");
    expect_error("-p a --greedy --seed 4", "--greedy and --seed exclude each other");
    expect_error("-p a --beams 2 --seed 4", "beam search excludes");
    expect_error("-p a --early-stopping soon", "--early-stopping");
    expect_error("-p a --length-penalty x", "--length-penalty must be a number from -1000 to 1000");
    expect_error("-p a --length-penalty 2", "--length-penalty is for beam search; it needs --beams N of at least 2");
    expect_error("-p a --early-stopping yes --beams 1", "--early-stopping is for beam search");
    expect_error("-p a --stop ''", "--stop: is empty");
    expect_error("-p a --stop-token x", "'x' is not an id");
    expect_error("-p a --stop-token 30", "--stop-token 30 is not below 30, the size of the vocabulary");
    expect_error("-p a --stop-token '1 2 3 4 5 6 7 8 9'", "--stop-token takes one id");
    expect_error("-p a --min-tokens -1", "--min-tokens");
    expect_error("-p a --min-tokens 6 --tokens 5", "--min-tokens 6 is more than --tokens 5");
    expect_error("-p a --cache int8", "--cache");
    expect_error("--ids '1 x'", "'x' is not an id");
    expect_error("--ids ''", "there is no id");
    expect_error("--ids 30", "prompt 1: token 30 is not below 30, the size of the vocabulary");
    expect_error("--prompts /nowhere", "cannot open '/nowhere'");
    snprintf(args, sizeof args, "--prompts %s", in_folder("empty.txt"));
    expect_error(args, "has no prompt");
    expect_error("-p $(printf 'a\\377')", "UTF-8");
    expect_error("-p a --tokenizer /nowhere", "/nowhere");
    expect_error("-p a extra", "unexpected argument 'extra'");
}

TEST(models_that_cannot_generate)
{
    const char *folder = letters_make("typical", "{\"typical_p\": 0.5}");
    char line[600];
    snprintf(line, sizeof line, "generate %s -p a", folder);
    const said *it = command("", line);
    expect(it->status == 2 && strstr(it->err, "typical_p is not supported"), "%s", it->err);
    letters_file(folder, "generation_config.json", "{\"top_p\": 7}");
    it = command("", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "generation_config.json: top_p is 7"), "%s",
           it->err);
    letters_file(folder, "generation_config.json", "{");
    it = command("", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "generation_config.json: byte"), "%s", it->err);
    it = command("", "generate /nowhere -p a");
    expect(it->status == 2 && one_line(it->err), "%s", it->err);
}
