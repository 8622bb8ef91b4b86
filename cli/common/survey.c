#include "cli/common/survey.h"
#include "cli/common/cli.h"
#include "cli/terminal/progress.h"

#include <stdlib.h>

static bool take_heads(survey *s, mha_context *ctx)
{
    s->info.size = sizeof s->info;
    if (mha_survey_about(ctx, s->of, &s->info)) return false;
    if (!(s->heads = calloc((size_t)s->info.heads, sizeof *s->heads)))
        return !mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the survey");
    for (int64_t n = 0; n < s->info.heads; n++) {
        s->heads[n].size = sizeof *s->heads;
        if (mha_survey_head_get(ctx, s->of, n, &s->heads[n])) return false;
    }
    return true;
}

bool survey_make(survey *s, mha_context *ctx, mha_model *model, const mha_data *data, const mha_survey_options *options,
                 const char *path)
{
    *s = (survey){0};
    progress_begin("measuring the heads of %s", path);
    bool made = !mha_survey_make(ctx, &s->of, model, data, MHA_DATA_TEST, options) && take_heads(s, ctx);
    progress_end();
    if (made) return true;
    cli_error("%s: %s", path, cli_reason(ctx));
    survey_free(s);
    return false;
}

void survey_free(survey *s)
{
    mha_survey_free(s->of);
    free(s->heads);
    *s = (survey){0};
}

int64_t survey_block_heads(const survey *s, int64_t block)
{
    int64_t count = 0;
    for (int64_t n = 0; n < s->info.heads; n++) count += s->heads[n].block == block;
    return count;
}

void survey_map(double *out, const survey *s, int64_t n)
{
    const double *map = mha_survey_map(s->of, n);
    int64_t T = s->info.tokens, skip = s->info.class_token, rows = skip ? 1 : T;
    for (int64_t j = 0; j < s->info.rows * s->info.columns; j++) {
        double sum = 0;
        for (int64_t i = 0; i < rows; i++) sum += map[i * T + skip + j];
        out[j] = sum / (double)rows;
    }
}

bool survey_view(heads_view *v, const survey *s)
{
    const mha_survey_info *about = &s->info;
    int64_t patches = about->rows * about->columns;
    *v = (heads_view){.blocks = about->blocks, .rows = about->rows, .columns = about->columns, .tokens = about->tokens};
    v->first = calloc((size_t)about->blocks + 1, sizeof *v->first);
    v->map = calloc((size_t)about->heads, (size_t)patches * sizeof(float));
    v->itself = calloc((size_t)about->heads, sizeof(float));
    double *one = calloc((size_t)patches, sizeof *one);
    bool ok = v->first && v->map && v->itself && one;
    for (int64_t n = 0; ok && n < about->heads; n++) {
        survey_map(one, s, n);
        for (int64_t j = 0; j < patches; j++) v->map[n * patches + j] = (float)one[j];
        v->first[s->heads[n].block + 1] = n + 1;
        if (s->heads[n].head + 1 > v->heads) v->heads = s->heads[n].head + 1;
    }
    free(one);
    if (!ok) heads_view_free(v);
    return ok;
}
