/* mha transcribe: what is said in sound files. */
#include "cli/transcribe/transcribe.h"
#include "cli/common/tokenizer.h"
#include "cli/common/model.h"
#include "cli/terminal/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void help(void)
{
    puts("Examples:\n"
         "  mha transcribe whisper talk.wav\n"
         "                        what is said, as the model writes it\n"
         "  mha transcribe whisper talk.wav --language de --task translate\n"
         "                        German speech as English text\n"
         "  mha transcribe whisper *.wav --json | jq -r '.files[].text'\n"
         "\n"
         "Usage: mha transcribe MODEL FILE.wav... [OPTIONS]\n"
         "  --language NAME       of the speech, as the model names it: en, de, ...\n"
         "                        (default: as its generation_config.json says, or else\n"
         "                        detected in the first window of each file)\n"
         "  --task TASK           transcribe, or translate: the text is English\n"
         "  --tokens N            most tokens of a window (default: as the model's file\n"
         "                        says, or 256)\n"
         "  --beams N             beam search with N beams\n" TOKENIZER_HELP
         "  --json                print one JSON object at the end\n"
         "  --quiet               no speed on standard error\n" CLI_HELP_DTYPE CLI_HELP_THREADS "\n"
         "MODEL is a folder of a Whisper as the transformers library saves it. Files are\n"
         "WAV of 16000 samples per second; channels are averaged. A sound longer than a\n"
         "window of the model, 30 seconds, is cut into consecutive windows: each one is\n"
         "transcribed independently, without timestamps, and the texts are joined. A word\n"
         "at a border may be lost. All files are read before the first is transcribed.\n"
         "\n"
         "JSON keys: model, files: [{file, seconds, language, task, prompt (tokens), text,\n"
         "windows: [{start, end (seconds), finish (end, length), text, tokens}]}],\n"
         "sound_seconds, seconds (that it took), tokens.");
}

static const cli_option options[] = {CLI_NAME("MODEL", transcribe_request, model),
                                     CLI_LIST("FILE", transcribe_request, files),
                                     CLI_NAME("--language", transcribe_request, language),
                                     CLI_NAME("--task", transcribe_request, task),
                                     CLI_NUMBER(CLI_TOKENS, transcribe_request, tokens, 1, 1 << 30),
                                     CLI_NUMBER("--beams --num-beams", transcribe_request, beams, 1, 1024),
                                     CLI_NAME("--tokenizer", transcribe_request, tokenizer),
                                     CLI_FLAG("--json", transcribe_request, json),
                                     CLI_FLAG("--quiet", transcribe_request, quiet),
                                     CLI_DTYPE(transcribe_request, type),
                                     CLI_THREADS(transcribe_request, threads),
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

static bool watch(void *user, const mha_generation_event *event)
{
    job *j = user;
    j->times.tokens++;
    return j->r->json || transcribe_show(event->text, event->length, &j->begun);
}

static bool keep(transcribe_window *w, const mha_generated *q)
{
    w->count = q->count - q->prompt;
    w->finish = q->finish;
    w->tokens = malloc((size_t)(w->count + 1) * sizeof *w->tokens);
    if (!w->tokens) return cli_error("transcribe: not enough memory for the tokens");
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
    o.tokenizer = j->tokenizer, o.callback = watch, o.user = j;
    if (j->r->json) progress_begin("transcribing %s", f->path);
    bool good = !mha_generation_create(j->ctx, &g, j->model, &in, &o) && !mha_generation_run(j->ctx, g);
    progress_end();
    if (!good) cli_error("transcribe: %s: %s", f->path, mha_context_error(j->ctx));
    mha_generated q = mha_generation_get(g, 0);
    good = good && keep(w, &q);
    mha_generation_free(g);
    return good;
}

/* ---- One file --------------------------------------------------------------------------------------------------- */

/* The prompt, with the language of the first window where it is to be detected. */
static bool start(job *j, transcribe_file *f)
{
    mha_speech_options o = MHA_SPEECH_DEFAULTS;
    o.language = j->r->language, o.task = j->r->task;
    f->prompt.size = sizeof f->prompt;
    return !mha_speech_start(j->ctx, &f->prompt, j->model, j->features, &o) ||
           cli_error("transcribe: %s: %s", j->r->model, mha_context_error(j->ctx));
}

static bool transcribe(job *j, transcribe_file *f)
{
    int64_t count, window = j->about.frames * MHA_SPEECH_HOP;
    const float *samples = mha_sound_samples(f->sound, &count);
    int64_t windows = window > 0 ? (count + window - 1) / window : 1;
    bool good = (f->windows = calloc((size_t)windows, sizeof *f->windows)) != NULL;
    if (!good) return cli_error("transcribe: not enough memory for the windows");
    j->begun = false;
    for (f->count = 0; good && f->count < windows; f->count++) {
        transcribe_window *w = &f->windows[f->count];
        int64_t first = f->count * window, left = count - first < window ? count - first : window;
        w->start = (double)first / MHA_SPEECH_RATE, w->end = (double)(first + left) / MHA_SPEECH_RATE;
        good = !mha_speech_features(j->ctx, j->features, samples + first, left) ||
               cli_error("transcribe: %s: %s", f->path, mha_context_error(j->ctx));
        if (good && !f->count && (good = start(j, f)) && !j->r->json && j->r->files.count > 1)
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
        if (mha_sound_open(j->ctx, &j->files[n].sound, j->files[n].path))
            return cli_error("transcribe: %s", mha_context_error(j->ctx));
    }
    if (model_load(j->ctx, &j->model, j->r->model, &o) || mha_model_about(j->ctx, j->model, &j->about))
        return cli_error("%s", mha_context_error(j->ctx));
    if (!j->about.frames) return cli_error("transcribe: %s: does not read audio; a Whisper does", j->r->model);
    if (!language_tokenizer(j->ctx, &j->tokenizer, j->r->model, j->r->tokenizer)) return false;
    j->numbers = malloc((size_t)(j->about.bins * j->about.frames) * sizeof *j->numbers);
    j->features = mha_tensor_3d(j->numbers, MHA_FLOAT32, 1, j->about.bins, j->about.frames);
    return j->numbers || cli_error("transcribe: not enough memory for the features");
}

static bool run(job *j)
{
    double begin = cli_clock();
    for (int n = 0; n < j->r->files.count; n++)
        if (!transcribe(j, &j->files[n])) return false;
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

static int work(mha_context *ctx, const transcribe_request *r)
{
    job j = {.ctx = ctx, .r = r, .about = {.size = sizeof j.about}};
    bool good = (j.files = calloc((size_t)r->files.count, sizeof *j.files)) != NULL;
    if (!good) cli_error("transcribe: not enough memory for the files");
    good = good && open_all(&j) && run(&j);
    close_all(&j);
    return good ? CLI_OK : CLI_USAGE;
}

int cmd_transcribe(int argc, char **argv)
{
    transcribe_request r = {0};
    int status = CLI_USAGE;
    if (!(r.files.all = calloc((size_t)argc + 1, sizeof *r.files.all)))
        return cli_error("transcribe: not enough memory"), CLI_USAGE;
    int stop = cli_parse("transcribe", argc, argv, options, help, &r);
    if (stop) status = stop - 1;
    else if (!r.model || !r.files.count)
        cli_error("transcribe: missing %s; usage: mha transcribe MODEL FILE.wav", r.model ? "FILE.wav" : "MODEL");
    else {
        mha_context *ctx = cli_context_of((int)r.threads);
        if (ctx) status = work(ctx, &r);
        mha_context_free(ctx);
    }
    free(r.files.all);
    return status;
}
