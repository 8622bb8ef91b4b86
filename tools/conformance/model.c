/* Cases of models: a folder with a checkpoint and, in expected.safetensors, what another library answers. */
#include "cli/common/cli.h"
#include "tools/conformance/conformance.h"
#include "tools/conformance/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool join_path(char *out, size_t room, const char *folder, const char *name, const char *file)
{
    int n = strcmp(name, ".") == 0 ? snprintf(out, room, "%s/%s", folder, file)
                                   : snprintf(out, room, "%s/%s/%s", folder, name, file);
    return n > 0 && (size_t)n < room;
}

bool conformance_is_model(const char *folder, const char *name)
{
    char config[4096], expected[4096];
    return join_path(config, sizeof config, folder, name, "config.json") &&
           join_path(expected, sizeof expected, folder, name, "expected.safetensors") && access(config, F_OK) == 0 &&
           access(expected, F_OK) == 0;
}

/* ---- Tensors ---------------------------------------------------------------------------------------------------- */

const nn_safetensors_tensor *model_case_tensor(model_case *c, const char *name)
{
    return nn_safetensors_find(c->expected, name);
}

/* Ids of a tensor of the file, as they are; none if it is not there. */
static mha_tensor ids_of(model_case *c, const char *name)
{
    mha_tensor t = MHA_NO_TENSOR;
    const nn_safetensors_tensor *from = model_case_tensor(c, name);
    if (from) nn_safetensors_view(from, &t);
    return t;
}

static double number_at(const nn_safetensors_tensor *t, int64_t i)
{
    if (t->dtype == NN_SAFETENSORS_F64) return ((const double *)t->data)[i];
    return t->dtype == NN_SAFETENSORS_F32 ? (double)((const float *)t->data)[i] : NAN;
}

/* Of row r of a tensor of B sequences of T rows, whether it is padding. */
static bool is_padding(const model_case *c, int64_t b, int64_t t) { return c->lengths && t >= c->lengths[b]; }

/* Compares `got`, laid out as the tensor, whose rows of `width` numbers belong to (b,t) in groups of `heads`: within 2e-5
 * of the largest number. */
static bool compare_numbers(model_case *c, const char *name, const float *got, int64_t B, int64_t heads, int64_t T,
                            int64_t width, bool padded)
{
    const nn_safetensors_tensor *want = model_case_tensor(c, name);
    double most = 0, worst = 0;
    if (!got) return model_case_fail(c, "not enough memory");
    if (!want) return model_case_fail(c, "%s is missing from expected.safetensors", name);
    if (want->count != B * heads * T * width)
        return model_case_fail(c, "%s has other sizes than the model gives", name);
    for (int64_t i = 0; i < want->count; i++) {
        int64_t b = i / (heads * T * width), t = i / width % T;
        if (padded && is_padding(c, b, t)) continue;
        double w = number_at(want, i), difference = fabs((double)got[i] - w);
        if (fabs(w) > most) most = fabs(w);
        if (!(difference <= worst)) worst = isnan(difference) ? INFINITY : difference;
    }
    double share = most > 0 ? worst / most : worst;
    if (share > c->difference) c->difference = share;
    return share <= 2e-5 || model_case_fail(c, "%s differs by %.1e of its largest number", name, share);
}

/* ---- One run ---------------------------------------------------------------------------------------------------- */

typedef struct results {
    float *logits, *hidden, *encoder_hidden, *map;
    mha_tensor *maps; /* (attentions) */
    int64_t *sizes;   /* (attentions): where each starts in map */
} results;

static void free_results(results *r)
{
    free(r->logits), free(r->hidden), free(r->encoder_hidden), free(r->map), free(r->maps), free(r->sizes);
}

static float *numbers(int64_t count) { return calloc((size_t)(count > 0 ? count : 1), sizeof(float)); }

static bool make_maps(model_case *c, results *r)
{
    int64_t count = mha_model_attention_count(c->model), all = 0;
    r->maps = calloc((size_t)count + 1, sizeof *r->maps);
    r->sizes = calloc((size_t)count + 1, sizeof *r->sizes);
    for (int pass = 0; r->maps && r->sizes && pass < 2; pass++) {
        all = 0;
        for (int64_t n = 0; n < count; n++) {
            mha_model_attention a = mha_model_attention_get(c->model, n);
            int64_t Tq = c->T[a.decoder], Tk = c->T[a.decoder && !a.cross];
            r->sizes[n] = all;
            r->maps[n] = mha_tensor_4d(pass ? r->map + all : NULL, MHA_FLOAT32, c->B, a.heads, Tq, Tk);
            all += c->B * a.heads * Tq * Tk;
        }
        if (!pass && !(r->map = numbers(all))) return false;
    }
    return r->maps && r->sizes;
}

/* Attentions are named by what they are and their number; a decoder alone, an encoder and an image model by number. */
static bool compare_maps(model_case *c, const results *r)
{
    if (!r->map || !r->sizes) return model_case_fail(c, "not enough memory");
    for (int64_t n = 0; n < mha_model_attention_count(c->model); n++) {
        mha_model_attention a = mha_model_attention_get(c->model, n);
        char name[64];
        const char *kind = !c->pair    ? "attentions"
                           : a.cross   ? "cross_attentions"
                           : a.decoder ? "decoder_attentions"
                                       : "encoder_attentions";
        snprintf(name, sizeof name, "%s.%lld", kind, (long long)a.block);
        if (!compare_numbers(c, name, r->map + r->sizes[n], c->B, a.heads, c->T[a.decoder], c->T[a.decoder && !a.cross],
                             !a.decoder || !c->pair))
            return false;
    }
    return true;
}

static bool run_model(model_case *c, results *r, const mha_model_inputs *in)
{
    bool last = c->T[1] > 0;
    int64_t rows = c->pooled ? 1 : c->T[last], T = c->T[last];
    r->logits = numbers(c->B * rows * c->classes);
    r->hidden = numbers((c->depth + 1) * c->B * T * c->width);
    r->encoder_hidden = c->pair ? numbers((c->encoder_depth + 1) * c->B * c->T[0] * c->encoder_width) : NULL;
    if (!r->logits || !r->hidden || !make_maps(c, r)) return model_case_fail(c, "not enough memory");
    mha_model_outputs out = {
        .logits = c->pooled ? mha_tensor_2d(r->logits, MHA_FLOAT32, c->B, c->classes)
                            : mha_tensor_3d(r->logits, MHA_FLOAT32, c->B, rows, c->classes),
        .hidden = mha_tensor_4d(r->hidden, MHA_FLOAT32, c->depth + 1, c->B, T, c->width),
        .maps = r->maps,
    };
    if (c->pair)
        out.encoder_hidden =
            mha_tensor_4d(r->encoder_hidden, MHA_FLOAT32, c->encoder_depth + 1, c->B, c->T[0], c->encoder_width);
    if (mha_model_run(c->ctx, c->model, &out, in)) return model_case_fail(c, "%s", mha_context_error(c->ctx));
    return true;
}

static bool compare_all(model_case *c, const results *r)
{
    bool last = c->T[1] > 0;
    int64_t rows = c->pooled ? 1 : c->T[last];
    const float *hidden = r->hidden + c->depth * c->B * c->T[last] * c->width;
    if (!compare_maps(c, r)) return false; /* first, since the first of them to differ says where */
    if (c->pair) {
        const float *rest = r->encoder_hidden + c->encoder_depth * c->B * c->T[0] * c->encoder_width;
        if (!compare_numbers(c, "encoder_hidden", rest, c->B, 1, c->T[0], c->encoder_width, true)) return false;
    } else if (model_case_tensor(c, "hidden") &&
               !compare_numbers(c, "hidden", hidden, c->B, 1, c->T[last], c->width, true))
        return false;
    return compare_numbers(c, "logits", r->logits, c->B, 1, rows, c->classes, !c->pooled && !c->pair);
}

/* ---- Inputs ----------------------------------------------------------------------------------------------------- */

/* Lengths of sequences that are padded at their ends. */
static bool find_lengths(model_case *c)
{
    mha_tensor mask = ids_of(c, "attention_mask");
    if (!mask.rank || mask.type != MHA_INT64 || mask.rank != 2) return true;
    c->lengths = calloc((size_t)c->B + 1, sizeof *c->lengths);
    for (int64_t b = 0; c->lengths && b < c->B; b++)
        for (int64_t t = 0; t < mask.size[1]; t++) c->lengths[b] += ((const int64_t *)mask.data)[b * mask.size[1] + t];
    return c->lengths || model_case_fail(c, "not enough memory");
}

/* The numbers of a tensor as float32, which the caller frees. */
static float *narrow(const nn_safetensors_tensor *t)
{
    float *to = numbers(t->count);
    for (int64_t i = 0; to && i < t->count; i++) to[i] = (float)number_at(t, i);
    return to;
}

static bool find_sizes(model_case *c, const mha_model_inputs *in)
{
    mha_model_info info = {.size = sizeof info};
    if (mha_model_about(c->ctx, c->model, &info)) return model_case_fail(c, "%s", mha_context_error(c->ctx));
    bool first = info.decoder_only;
    const mha_tensor *from = in->images.rank ? &in->images : in->features.rank ? &in->features : &in->tokens;
    if (from->rank < 2) return model_case_fail(c, "expected.safetensors has no inputs");
    c->B = from->size[0];
    c->T[first] = info.tokens ? info.tokens : from->size[1];
    if (c->pair) c->T[1] = in->decoder_tokens.rank == 2 ? in->decoder_tokens.size[1] : c->T[0];
    c->classes = info.classes, c->depth = info.blocks, c->width = info.width, c->pooled = info.pooled;
    c->encoder_depth = info.encoder_blocks, c->encoder_width = info.encoder_width;
    return true;
}

static bool run_forward(model_case *c)
{
    mha_model_inputs in = {.tokens = ids_of(c, "input_ids"), .decoder_tokens = ids_of(c, "decoder_input_ids")};
    const nn_safetensors_tensor *pixels = model_case_tensor(c, "pixel_values"),
                                *features = model_case_tensor(c, "input_features");
    const nn_safetensors_tensor *from = pixels ? pixels : features;
    float *data = from ? narrow(from) : NULL;
    results r = {0};
    if (from && from->rank <= 4) {
        mha_tensor t = {.data = data, .type = MHA_FLOAT32, .rank = from->rank};
        int64_t stride = 1;
        for (int i = from->rank - 1; i >= 0; i--)
            t.size[i] = from->shape[i], t.stride[i] = stride, stride *= from->shape[i];
        if (pixels) in.images = t;
        else in.features = t;
    }
    bool ok = find_sizes(c, &in) && find_lengths(c);
    if (ok && c->lengths) in.lengths = mha_tensor_1d(c->lengths, MHA_INT64, c->B);
    ok = ok && run_model(c, &r, &in) && compare_all(c, &r);
    free_results(&r);
    free(data);
    return ok;
}

/* ---- One case --------------------------------------------------------------------------------------------------- */

static bool run_case(model_case *c, const char *folder, const char *name)
{
    char path[4096], expected[4096], error[400] = "";
    if (!join_path(path, sizeof path, folder, name, "") ||
        !join_path(expected, sizeof expected, folder, name, "expected.safetensors"))
        return model_case_fail(c, "the path is too long");
    nn_safetensors_open(&c->expected, expected, error, sizeof error);
    if (!c->expected) return model_case_fail(c, "%s", error);
    if (mha_model_open(c->ctx, &c->model, path, NULL)) return model_case_fail(c, "%s", mha_context_error(c->ctx));
    const char *kind = nn_safetensors_metadata(c->expected, "kind");
    c->pair = kind && strcmp(kind, "pair") == 0;
    return run_forward(c) && model_case_generate(c);
}

void conformance_run_model(mha_context *ctx, const char *folder, const char *name, conformance_count *count)
{
    model_case c = {.ctx = ctx};
    char number[16] = "   -   ";
    bool ok = run_case(&c, folder, name);
    if (c.difference > 0) snprintf(number, sizeof number, "%7.1e", c.difference);
    cli_print(stdout, "%s%s %s\n", ok ? "  ok    " : "FAILED  ", number, name);
    if (!ok) cli_print(stdout, "        %s\n", c.why);
    if (c.unanswered)
        cli_print(stdout,
                  "        %d continuation of a padded prompt is not compared: the answer begins with token 0\n",
                  c.unanswered);
    count->passed += ok, count->failed += !ok;
    nn_safetensors_free(c.expected);
    mha_model_free(c.model);
    free(c.lengths);
}
