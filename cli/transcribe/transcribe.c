/* mha transcribe: what is said in sound files. */
#include "cli/transcribe/transcribe.h"
#include "cli/common/tokenizer.h"
#include "cli/common/model.h"
#include "cli/terminal/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const cli_option options[] = {
    {"MODEL", "MODEL", "", CLI_NAME(transcribe_request, model), .required = true},
    {"FILE", "FILE.wav", "", CLI_LIST(transcribe_request, files), .required = true},
    {"--language", "NAME", "of the speech, as the model names it: en, de, ...", CLI_NAME(transcribe_request, language),
     .otherwise = "as its generation_config.json says, or else detected in the first window of each file"},
    {"--task", "TASK", "transcribe, or translate: the text is English", CLI_NAME(transcribe_request, task)},
    {CLI_TOKENS, "N", "most tokens of a window", CLI_NUMBER(transcribe_request, tokens, 1, 1 << 30),
     .otherwise = "as the model's file says, or 256", .argument = "options.max_new_tokens"},
    {"--beams --num-beams", "N", "beam search with N beams", CLI_NUMBER(transcribe_request, beams, 1, 1024),
     .argument = "options.beams"},
    {TOKENIZER_ROW(transcribe_request, tokenizer)},
    {"--json", NULL, "print one JSON object at the end", CLI_FLAG(transcribe_request, json)},
    {"--quiet", NULL, "no speed on standard error", CLI_FLAG(transcribe_request, quiet)},
    {CLI_DTYPE(transcribe_request, type)},
    {CLI_THREADS(transcribe_request, threads)},
    CLI_END};

/* All that a file needs. */
typedef struct job {
    mha_context *ctx;
    const transcribe_request *r;
    mha_model *model;
    mha_model_info about;
    mha_tokenizer *tokenizer;
    float *numbers;
    mha_tensor features; /* (1,bins,frames) of one window, over `numbers` */
    transcribe_file *files;
    transcribe_times times;
    bool begun; /* the text of this file has */
} job;

/* ---- One window ------------------------------------------------------------------------------------------------- */

static bool show_token(void *user, const mha_generation_event *event)
{
    job *j = user;
    j->times.tokens++;
    return j->r->json || transcribe_show(event->text, event->length, &j->begun);
}

static bool keep_text(transcribe_window *w, const mha_generated *q)
{
    w->count = q->count - q->prompt;
    w->finish = q->finish;
    w->tokens = malloc((size_t)(w->count + 1) * sizeof *w->tokens);
    if (!w->tokens) return cli_refuse("not enough memory for the tokens");
    memcpy(w->tokens, q->tokens + q->prompt, (size_t)w->count * sizeof *w->tokens);
    nn_buffer_put(&w->text, q->text, q->length);
    return true;
}

static bool transcribe_window_of(job *j, const transcribe_file *f, transcribe_window *w)
{
    const int64_t starts[2] = {0, f->prompt.count};
    mha_generation_inputs in = {
        .count = 1, .decoder_tokens = f->prompt.tokens, .decoder_starts = starts, .features = j->features};
    mha_generation_options o = MHA_GENERATION_DEFAULTS;
    mha_generation *g = NULL;
    o.max_new_tokens = j->r->tokens;
    o.beams = j->r->beams;
    if (j->r->beams) o.method = j->r->beams > 1 ? MHA_GENERATE_BEAMS : MHA_GENERATE_GREEDY;
    o.tokenizer = j->tokenizer, o.callback = show_token, o.user = j;
    if (j->r->json) progress_begin("transcribing %s", f->path);
    bool good = !mha_generation_create(j->ctx, &g, j->model, &in, &o) && !mha_generation_run(j->ctx, g);
    progress_end();
    if (!good) cli_refuse("%s: %s", f->path, cli_reason(j->ctx));
    mha_generated q = mha_generation_get(g, 0);
    good = good && keep_text(w, &q);
    mha_generation_free(g);
    return good;
}

/* ---- One file --------------------------------------------------------------------------------------------------- */

/* The prompt, with the language of the first window where it is to be detected. */
static bool start_prompt(job *j, transcribe_file *f)
{
    mha_speech_options o = MHA_SPEECH_DEFAULTS;
    o.language = j->r->language, o.task = j->r->task;
    f->prompt.size = sizeof f->prompt;
    return !mha_speech_start(j->ctx, &f->prompt, j->model, j->features, &o) ||
           cli_refuse("%s: %s", j->r->model, cli_reason(j->ctx));
}

static bool transcribe_file_of(job *j, transcribe_file *f)
{
    int64_t count, window = j->about.frames * MHA_SPEECH_HOP;
    const float *samples = mha_sound_samples(f->sound, &count);
    int64_t windows = window > 0 ? (count + window - 1) / window : 1;
    bool good = (f->windows = calloc((size_t)windows, sizeof *f->windows)) != NULL;
    if (!good) return cli_refuse("not enough memory for the windows");
    j->begun = false;
    for (f->count = 0; good && f->count < windows; f->count++) {
        transcribe_window *w = &f->windows[f->count];
        int64_t first = f->count * window, left = count - first < window ? count - first : window;
        w->start = (double)first / MHA_SPEECH_RATE, w->end = (double)(first + left) / MHA_SPEECH_RATE;
        good = !mha_speech_features(j->ctx, j->features, samples + first, left) ||
               cli_refuse("%s: %s", f->path, cli_reason(j->ctx));
        if (good && !f->count && (good = start_prompt(j, f)) && !j->r->json && j->r->files.count > 1)
            cli_print(stdout, "%s: ", f->path);
        good = good && transcribe_window_of(j, f, w);
        if (good && f->count + 1 == windows && !j->r->json) putchar('\n');
    }
    j->times.sound += (double)count / MHA_SPEECH_RATE;
    return good;
}

/* ---- All of them ------------------------------------------------------------------------------------------------ */

static bool open_all(job *j)
{
    mha_model_options o = MHA_MODEL_DEFAULTS;
    o.compute = j->r->type;
    for (int n = 0; n < j->r->files.count; n++) {
        j->files[n].path = j->r->files.all[n];
        if (mha_sound_open(j->ctx, &j->files[n].sound, j->files[n].path)) return cli_refuse("%s", cli_reason(j->ctx));
    }
    if (model_load(j->ctx, &j->model, j->r->model, &o) || mha_model_about(j->ctx, j->model, &j->about))
        return cli_error("%s", cli_reason(j->ctx));
    if (!j->about.frames) return cli_refuse("%s: does not read audio; a Whisper does", j->r->model);
    if (!language_tokenizer(j->ctx, &j->tokenizer, j->r->model, j->r->tokenizer)) return false;
    j->numbers = malloc((size_t)(j->about.bins * j->about.frames) * sizeof *j->numbers);
    j->features = mha_tensor_3d(j->numbers, MHA_FLOAT32, 1, j->about.bins, j->about.frames);
    return j->numbers || cli_refuse("not enough memory for the features");
}

static bool transcribe_all(job *j)
{
    double begin = cli_clock();
    for (int n = 0; n < j->r->files.count; n++)
        if (!transcribe_file_of(j, &j->files[n])) return false;
    j->times.seconds = cli_clock() - begin;
    if (j->r->json && !transcribe_print_json(j->r, j->files, &j->times)) return false;
    if (!j->r->quiet) fflush(stdout), transcribe_print_times(&j->times);
    return true;
}

static void close_all(job *j)
{
    for (int n = 0; j->files && n < j->r->files.count; n++) {
        transcribe_file *f = &j->files[n];
        for (int64_t w = 0; f->windows && w < f->count; w++) {
            nn_buffer_free(&f->windows[w].text);
            free(f->windows[w].tokens);
        }
        free(f->windows);
        mha_sound_free(f->sound);
    }
    free(j->files);
    free(j->numbers);
    mha_tokenizer_free(j->tokenizer);
    mha_model_free(j->model);
}

static int transcribe_files(mha_context *ctx, const transcribe_request *r)
{
    job j = {.ctx = ctx, .r = r, .about = {.size = sizeof j.about}};
    bool good = (j.files = calloc((size_t)r->files.count, sizeof *j.files)) != NULL;
    if (!good) cli_refuse("not enough memory for the files");
    good = good && open_all(&j) && transcribe_all(&j);
    close_all(&j);
    return good ? CLI_OK : CLI_USAGE;
}

static int run_transcribe(void *asked)
{
    const transcribe_request *r = asked;
    mha_context *ctx = cli_context_of((int)r->threads);
    int status = ctx ? transcribe_files(ctx, r) : CLI_USAGE;
    mha_context_free(ctx);
    return status;
}

const cli_command transcribe_command = {
    .name = "transcribe",
    .summary = "write down what is said in WAV files",
    .usage = "MODEL FILE.wav... [OPTIONS]",
    .examples = "  mha transcribe whisper talk.wav\n"
                "                        what is said, as the model writes it\n"
                "  mha transcribe whisper talk.wav --language de --task translate\n"
                "                        German speech as English text\n"
                "  mha transcribe whisper *.wav --json | jq -r '.files[].text'\n",
    .notes = "MODEL is a folder of a Whisper as the transformers library saves it. Files are\n"
             "WAV of 16000 samples per second; channels are averaged. A sound longer than a\n"
             "window of the model, 30 seconds, is cut into consecutive windows: each one is\n"
             "transcribed independently, without timestamps, and the texts are joined. A word\n"
             "at a border may be lost. All files are read before the first is transcribed.\n"
             "\n"
             "JSON keys: model, files: [{file, seconds, language, task, prompt (tokens), text,\n"
             "windows: [{start, end (seconds), finish (end, length), text, tokens}]}],\n"
             "sound_seconds, seconds (that it took), tokens.\n",
    .options = options,
    .request_size = sizeof(transcribe_request),
    .run = run_transcribe};
