/* mha heads --audio and mha view --audio: the heads of a model that reads audio are those of its decoder, with the numbers of
 * the maps that mha_model_run computes over what it transcribes; the page names frames by their time; and every wrong use is
 * one line. */
#include "cli/page.h"
#include "cli/transcribe/listener.h"

#include <math.h>
#include <mha_speech.h>

enum { WINDOW = LISTENER_FRAMES * 160, FRAMES = LISTENER_FRAMES / 2, HEADS = 2, NEW = 8 };

static const char *model(void)
{
    static char path[256];
    if (!*path) snprintf(path, sizeof path, "%s", listener_make("listener", LISTENER_NAMES));
    return path;
}

static const said *ask(const char *what, const char *args)
{
    char line[1500];
    snprintf(line, sizeof line, "%s %s %s", what, model(), args);
    return command("LC_ALL=C", line);
}

/* What a head of the survey is. */
static const char *head_of(const said *it, int n)
{
    static char survey[1 << 16], all[1 << 16];
    snprintf(survey, sizeof survey, "%s", json_field(it->out, "survey"));
    snprintf(all, sizeof all, "%s", json_field(survey, "heads"));
    return json_element(all, n);
}

/* The tokens of the decoder for the first window of a sound: the prompt, and what was heard. */
static int64_t heard(int32_t *tokens, const char *sound)
{
    static char args[400], files[1 << 16], file[1 << 16], windows[1 << 16], window[1 << 16];
    int64_t count = 0;
    snprintf(args, sizeof args, "%s --json --quiet --tokens %d", sound, NEW);
    const said *it = ask("transcribe", args);
    snprintf(files, sizeof files, "%s", json_field(it->out, "files"));
    snprintf(file, sizeof file, "%s", json_element(files, 0));
    snprintf(windows, sizeof windows, "%s", json_field(file, "windows"));
    snprintf(window, sizeof window, "%s", json_element(windows, 0));
    const char *lists[] = {strdup(json_field(file, "prompt")), strdup(json_field(window, "tokens"))};
    for (int n = 0; n < 2; n++) {
        for (const char *at = lists[n]; at && (at = strpbrk(at, "0123456789")); at += strspn(at, "0123456789"))
            tokens[count++] = (int32_t)strtol(at, NULL, 10);
        free((void *)(uintptr_t)lists[n]);
    }
    return count;
}

/* The maps of the decoder's self-attention and cross-attention for the first window of a sound. */
static bool run(float *own, float *cross, const char *path, int32_t *tokens, int64_t T)
{
    mha_context *ctx = NULL;
    mha_model *m = NULL;
    mha_sound *sound = NULL;
    static float numbers[LISTENER_BINS * LISTENER_FRAMES];
    int64_t count = 0;
    mha_tensor features = mha_tensor_3d(numbers, MHA_FLOAT32, 1, LISTENER_BINS, LISTENER_FRAMES);
    bool ok = !mha_context_create(&ctx, NULL) && !mha_model_open(ctx, &m, model(), NULL) &&
              !mha_sound_open(ctx, &sound, path);
    const float *samples = ok ? mha_sound_samples(sound, &count) : NULL;
    mha_tensor maps[3] = {MHA_NO_TENSOR, mha_tensor_4d(own, MHA_FLOAT32, 1, HEADS, T, T),
                          mha_tensor_4d(cross, MHA_FLOAT32, 1, HEADS, T, FRAMES)};
    mha_model_inputs in = {.features = features, .decoder_tokens = mha_tensor_2d(tokens, MHA_INT32, 1, T)};
    mha_model_outputs out = {.maps = maps};
    ok = ok && !mha_speech_features(ctx, features, samples, count < WINDOW ? count : WINDOW) &&
         !mha_model_run(ctx, m, &out, &in);
    expect(ok, "%s", ctx ? mha_context_error(ctx) : "no context");
    mha_sound_free(sound);
    mha_model_free(m);
    mha_context_free(ctx);
    return ok;
}

/* The mean over rows of a map's largest weight. */
static double largest_of(const float *map, int64_t rows, int64_t columns)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        float most = 0;
        for (int64_t j = 0; j < columns; j++)
            if (map[i * columns + j] > most) most = map[i * columns + j];
        sum += (double)most;
    }
    return sum / (double)rows;
}

TEST(heads_have_the_numbers_of_the_maps_of_what_was_heard)
{
    int32_t tokens[64];
    static float own[HEADS * 64 * 64], cross[HEADS * 64 * FRAMES];
    char args[400];
    listener_sound("short.wav", 16000, 2000);
    int64_t T = heard(tokens, in_folder("short.wav"));
    snprintf(args, sizeof args, "--audio %s --json --window %d", in_folder("short.wav"), NEW);
    const said *it = ask("heads", args);
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    expect(T > 4 && run(own, cross, in_folder("short.wav"), tokens, T), "%lld tokens", (long long)T);
    expect(strstr(json_field(it->out, "audio"), "short.wav"), "%s", it->out);
    for (int n = 0; n < 2 * HEADS; n++) {
        char one[1 << 14];
        snprintf(one, sizeof one, "%s", head_of(it, n));
        bool is_cross = n >= HEADS;
        const float *map = is_cross ? cross + (n - HEADS) * T * FRAMES : own + n * T * T;
        double want = largest_of(map, T, is_cross ? FRAMES : T), got = strtod(json_field(one, "largest"), NULL);
        expect(!strcmp(json_field(one, "attention"), is_cross ? "cross" : "decoder"), "head %d: %s", n, one);
        expect(fabs(got - want) < 1e-5, "head %d: %g, not %g", n, got, want);
        double uniform = strtod(json_field(one, "uniform"), NULL);
        expect(!is_cross || fabs(uniform - log(FRAMES)) < 1e-4, "head %d: %g", n, uniform);
    }
    expect(!*head_of(it, 2 * HEADS), "there is a head of the encoder");
}

TEST(a_table_and_a_picture_of_a_sound)
{
    char args[600];
    listener_sound("more.wav", 16000, 2 * WINDOW + 1);
    snprintf(args, sizeof args, "--audio %s", in_folder("more.wav"));
    const said *it = ask("heads", args);
    expect(it->status == 0 && !*it->err && widest_line(it->out) <= 80, "exit %d: %s", it->status, it->err);
    expect(strstr(it->out, "  audio   ") && strstr(it->out, "; 3 windows;"), "%s", it->out);
    expect(strstr(it->out, "Cross-attention of the decoder") && !strstr(it->out, "Encoder") &&
               strstr(it->out, "that of its frames"),
           "%s", it->out);
    expect(strstr(it->out, "random tokens, each repeated once"), "%s", it->out);
    snprintf(args, sizeof args, "--audio %s --sample 2 --format svg -o %s", in_folder("more.wav"), in_folder("h.svg"));
    it = ask("heads", args);
    expect(it->status == 0 && strstr(it->out, "wrote the maps of 4 heads"), "%s%s", it->out, it->err);
}

TEST(a_page_of_a_sound)
{
    static char page[1 << 20];
    char args[600];
    listener_sound("view.wav", 16000, 2000);
    snprintf(args, sizeof args, "--audio %s -o %s", in_folder("view.wav"), in_folder("p.html"));
    const said *it = ask("view", args);
    expect(it->status == 0 && strstr(it->out, " over 12 frames"), "%s%s", it->out, it->err);
    slurp(in_folder("p.html"), page, sizeof page);
    expect(strstr(page, "\"0.00 s\",\"0.02 s\"") && strstr(page, "\"0.22 s\""), "no times of frames");
    char *script = strstr(page, "<script type=\"module\""); /* which has the words of all pages */
    if (expect(script, "no script")) *script = 0;
    expect(strstr(page, "Cross-attention") && !strstr(page, "\"Encoder\""), "sets");
}

TEST(wrong_use_is_one_line)
{
    static const struct {
        const char *what, *args, *says;
    } wrong[] = {
        {"heads", "", "the model reads audio; give it some with --audio FILE.wav\n"},
        {"heads", "--text FOLDER/a.wav", "the model reads audio; give it some with --audio FILE.wav\n"},
        {"heads", "--audio FOLDER/absent.wav", "No such file or directory\n"},
        {"heads", "--audio FOLDER/fast.wav", "16000"},
        {"heads", "--audio FOLDER/a.wav --text FOLDER/a.wav", "--text and --audio exclude each other\n"},
        {"heads", "--audio FOLDER/a.wav --relations x", "--audio and --relations exclude each other\n"},
        {"heads", "--audio FOLDER/a.wav --target x", "heads: --target needs --text FILE\n"},
        {"heads", "--audio FOLDER/a.wav --data x", "--data is for models of images"},
        {"heads", "--audio FOLDER/a.wav --ablate", "only models with one stack of blocks can lose single heads\n"},
        {"view", "-o FOLDER/p.html", "the model reads audio; give it some with --audio FILE.wav\n"},
        {"view", "--audio FOLDER/a.wav --text x -o FOLDER/p.html", "view: --text and --audio exclude each other\n"},
        {"view", "--audio FOLDER/a.wav -o FOLDER/a.wav", "is also the sound"},
    };
    listener_sound("a.wav", 16000, 2000);
    listener_sound("fast.wav", 44100, 2000);
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        char args[800] = "";
        for (const char *at = wrong[n].args; *at;) {
            size_t used = strlen(args);
            bool folder = strncmp(at, "FOLDER", 6) == 0;
            if (folder) snprintf(args + used, sizeof args - used, "%s", command_folder);
            else snprintf(args + used, sizeof args - used, "%c", *at);
            at += folder ? 6 : 1;
        }
        const said *it = ask(wrong[n].what, args);
        expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, wrong[n].says),
               "%s %s: exit %d, '%s'", wrong[n].what, args, it->status, it->err);
    }
    char line[600];
    snprintf(line, sizeof line, "heads %s --audio %s", letters_make("letters", NULL), in_folder("a.wav"));
    const said *it = command("LC_ALL=C", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "does not read audio; a Whisper does"), "%s",
           it->err);
}
