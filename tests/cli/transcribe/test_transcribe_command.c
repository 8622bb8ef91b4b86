/* mha transcribe: texts of windows are those of the windows alone, JSON has what the help says, names of languages and tasks
 * become tokens, and every wrong use is one line. Whether texts are right: tests/families/speech.py. */
#include "cli/transcribe/listener.h"

#include <math.h>

enum { WINDOW = LISTENER_FRAMES * 160 };

static const char *model(void)
{
    static char path[256];
    if (!*path) snprintf(path, sizeof path, "%s", listener_make("listener", LISTENER_NAMES));
    return path;
}

static const said *transcribe(const char *args)
{
    char line[1500];
    snprintf(line, sizeof line, "transcribe %s %s", model(), args);
    return command("LC_ALL=C", line);
}

/* A field of file n of a JSON answer. */
static const char *field_of(const said *it, int n, const char *field)
{
    static char object[1 << 14], fields[4][4096];
    static int next;
    char *text = fields[next++ % 4];
    snprintf(object, sizeof object, "%s", json_element(json_field(it->out, "files"), n));
    snprintf(text, sizeof fields[0], "%.*s", (int)sizeof fields[0] - 1, json_field(object, field));
    return text;
}

TEST(a_sound_becomes_a_text)
{
    char args[400], text[4096];
    listener_sound("short.wav", 16000, 2000);
    snprintf(args, sizeof args, "%s --language en", in_folder("short.wav"));
    const said *it = transcribe(args);
    expect(it->status == 0 && strlen(it->out) > 4 && one_line(it->out), "%s%s", it->out, it->err);
    expect(one_line(it->err) && strstr(it->err, "0.1 s of sound in ") && strstr(it->err, " 8 tokens"), "%s", it->err);
    snprintf(text, sizeof text, "%.*s", (int)strlen(it->out) - 1, it->out);
    snprintf(args, sizeof args, "%s --language '<|EN|>' --json --quiet --threads 1", in_folder("short.wav"));
    it = transcribe(args);
    expect(it->status == 0 && !*it->err && !strcmp(field_of(it, 0, "text"), text), "%s, not %s", it->out, text);
}

TEST(a_long_sound_is_cut_into_windows)
{
    static char alone[1 << 14], first[1 << 14];
    char args[400];
    listener_sound("one.wav", 16000, WINDOW);
    listener_sound("more.wav", 16000, 2 * WINDOW + 1);
    snprintf(args, sizeof args, "%s %s --language de --json --quiet", in_folder("one.wav"), in_folder("more.wav"));
    const said *it = transcribe(args);
    expect(it->status == 0, "%s", it->err);
    snprintf(alone, sizeof alone, "%s", json_element(field_of(it, 0, "windows"), 0));
    snprintf(first, sizeof first, "%s", json_element(field_of(it, 1, "windows"), 0));
    expect(*alone && !strcmp(alone, first), "%s, not %s", first, alone);
    snprintf(first, sizeof first, "%s", json_element(field_of(it, 1, "windows"), 2));
    expect(!strcmp(json_field(first, "start"), "0.4800") && !strcmp(json_field(first, "end"), "0.4801"), "%s", first);
    expect(strlen(field_of(it, 1, "text")) > strlen(field_of(it, 0, "text")), "%s", it->out);
    snprintf(args, sizeof args, "%s %s --language de --quiet", in_folder("one.wav"), in_folder("more.wav"));
    it = transcribe(args);
    const char *second = strstr(it->out, "more.wav: ");
    expect(second && strstr(it->out, "one.wav: ") && second > strstr(it->out, "one.wav: "), "%s", it->out);
}

static void expect_prompt(const char *options, const char *prompt)
{
    char args[400];
    snprintf(args, sizeof args, "%s --json --quiet %s", in_folder("a.wav"), options);
    const said *it = transcribe(args);
    expect(it->status == 0 && !strcmp(field_of(it, 0, "prompt"), prompt), "%s: %s%s", options, it->out, it->err);
}

TEST(names_become_tokens)
{
    char args[400];
    listener_sound("a.wav", 16000, 3000);
    expect_prompt("--language en", "[30, 31, 33, 35]");
    expect_prompt("--language de --task transcribe", "[30, 32, 33, 35]");
    expect_prompt("--language de --task translate --beams 2", "[30, 32, 34, 35]");
    snprintf(args, sizeof args, "%s --json --quiet --task translate", in_folder("a.wav"));
    const said *it = transcribe(args);
    const char *prompt = field_of(it, 0, "prompt"), *language = field_of(it, 0, "language");
    bool english = !strcmp(language, "en");
    expect(!strcmp(prompt, english ? "[30, 31, 34, 35]" : "[30, 32, 34, 35]"), "%s: %s", language, prompt);
    expect(english || !strcmp(language, "de"), "detected %s", language);
}

TEST(json_has_the_documented_keys)
{
    static const char *const keys[] = {"model", "files", "sound_seconds", "seconds", "tokens"};
    static const char *const inner[] = {"file", "seconds", "language", "task", "prompt", "text", "windows"};
    char args[400];
    listener_sound("b.wav", 16000, 3000);
    snprintf(args, sizeof args, "%s --json --quiet", in_folder("b.wav"));
    const said *it = transcribe(args);
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) expect(*json_field(it->out, keys[n]), "no key %s", keys[n]);
    for (size_t n = 0; n < sizeof inner / sizeof *inner; n++) expect(*field_of(it, 0, inner[n]), "no key %s", inner[n]);
    it = command("", "transcribe --help");
    for (size_t n = 0; n < sizeof inner / sizeof *inner; n++)
        expect(strstr(it->out, inner[n]) != NULL, "no %s in the help", inner[n]);
}

TEST(nothing_leaks)
{
    char line[800];
    listener_sound("c.wav", 16000, WINDOW + 5);
    snprintf(line, sizeof line, "transcribe %s %s --json --quiet --beams 2", model(), in_folder("c.wav"));
    expect(command("", line)->status == 0, "a good sound");
    snprintf(line, sizeof line, "transcribe %s %s --language xx", model(), in_folder("c.wav"));
    expect(command("", line)->status == 2, "a bad language");
}

/* ---- Wrong use -------------------------------------------------------------------------------------------------- */

static void expect_error(const char *args, const char *says)
{
    const said *it = transcribe(args);
    expect(it->status == 2 && one_line(it->err) && !*it->out, "%s: status %d, %s%s", args, it->status, it->out,
           it->err);
    expect(strstr(it->err, says) != NULL, "%s: \"%s\" does not say \"%s\"", args, it->err, says);
}

TEST(wrong_use_is_one_line)
{
    char args[900], good[300];
    snprintf(good, sizeof good, "%s", listener_sound("good.wav", 16000, 1000));
    expect_error("", "missing FILE.wav");
    expect_error("/nowhere.wav", "/nowhere.wav");
    snprintf(args, sizeof args, "%s %s", good, listener_sound("cd.wav", 44100, 1000));
    expect_error(args, "cd.wav: has 44100 samples per second, but 16000 are needed");
    expect_error(listener_sound("empty.wav", 16000, 0), "empty.wav: has no samples");
    snprintf(args, sizeof args, "%s/config.json", model());
    expect_error(args, "config.json");
    const struct {
        const char *options, *says;
    } wrong[] = {{"--language klingon", "has no language \"klingon\"; it has \"en, de\""},
                 {"--language ''", "--language"},
                 {"--task sing", "has no task \"sing\"; it has \"transcribe, translate\""},
                 {"--tokens 0", "--tokens"},
                 {"--beams x", "--beams"},
                 {"--tokenizer /nowhere", "/nowhere"},
                 {"--speed 3", "--speed"}};
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        snprintf(args, sizeof args, "%s %s", good, wrong[n].options);
        expect_error(args, wrong[n].says);
    }
}

TEST(models_that_cannot_transcribe)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {{"{\"lang_to_id\": [1]}", "lang_to_id is not an object of names and tokens"},
                 {"{\"lang_to_id\": {\"<|en|>\": -1}}", "lang_to_id has a token that is not a number"},
                 {"{\"task_to_id\": {\"transcribe\": 9999999999}}", "task_to_id has a token that is too large"},
                 {"{\"forced_decoder_ids\": [[1, 2], [3, 4]]}", "forced_decoder_ids leaves out a place"},
                 {"{\"forced_decoder_ids\": [[1]]}", "forced_decoder_ids has a pair without"},
                 {"{\"forced_decoder_ids\": [[1, 2, 3]]}", "forced_decoder_ids has a pair of more"},
                 {"{\"language\": 3}", "language is not a string"},
                 {"{\"is_multilingual\": 1}", "is_multilingual is not true or false"},
                 {"{\"no_timestamps_token_id\": \"x\"}", "no_timestamps_token_id has a token"},
                 {"{\"decoder_start_token_id\": 999}", "999"},
                 {"{\"eos_token_id\": 29}", "has no decoder_start_token_id"},
                 {"{\"decoder_start_token_id\": 30, \"lang_to_id\": {\"<|x|>\": 999}}", "has no token below 36"}};
    const char *sound = listener_sound("d.wav", 16000, 1000), *folder = listener_make("wrong", "{}");
    char line[900];
    snprintf(line, sizeof line, "transcribe %s %s", folder, sound);
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        letters_file(folder, "generation_config.json", wrong[n].text);
        const said *it = command("", line);
        expect(it->status == 2 && one_line(it->err) && !*it->out, "%s: %s%s", wrong[n].text, it->out, it->err);
        expect(strstr(it->err, wrong[n].says) != NULL, "%s: %s", wrong[n].text, it->err);
    }
    letters_file(folder, "generation_config.json", "{\"decoder_start_token_id\": 30, \"is_multilingual\": false}");
    snprintf(line, sizeof line, "transcribe %s %s --task translate", folder, sound);
    expect(strstr(command("", line)->err, "is of English alone") != NULL, "English alone");
    snprintf(line, sizeof line, "transcribe %s %s", letters_make("reader", NULL), sound);
    expect(strstr(command("", line)->err, "does not read audio") != NULL, "a Llama");
    expect(strstr(command("", "transcribe")->err, "missing MODEL") != NULL, "no model");
}
