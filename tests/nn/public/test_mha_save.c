/* Models of every family (MHA_MODELS/hf), saved as folders: what is opened again has the same bits, in one file or in shards;
 * parts that were changed come back; and what cannot be saved leaves nothing. With MHA_SAVED, the folders stay there. */
#include "families/save.h"
#include "public/model.h"
#include "support/contexts.h"
#include "support/harness.h"
#include "support/numbers.h"
#include "support/saving.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void remove_model(const char *path)
{
    char name[1400];
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (*e->d_name != '.') unlink(name);
    }
    if (folder) closedir(folder);
    rmdir(path);
}

static int count_files(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) count += *e->d_name != '.';
    if (folder) closedir(folder);
    return count;
}

static int64_t count_numbers(const mha_tensor *t)
{
    int64_t count = 1;
    for (int axis = 0; axis < t->rank; axis++) count *= t->size[axis];
    return count;
}

/* A tensor as dense float32 numbers, to be freed. */
static float *numbers_of(mha_context *ctx, mha_tensor t, mha_tensor *dense)
{
    int64_t stride = 1;
    *dense = t;
    dense->data = array(count_numbers(&t) + 1, sizeof(float)), dense->type = MHA_FLOAT32;
    for (int axis = t.rank - 1; axis >= 0; axis--) dense->stride[axis] = stride, stride *= t.size[axis];
    if (t.data) expect(!mha_tensor_copy(ctx, *dense, t), "%s", mha_context_error(ctx));
    return dense->data;
}

/* What is saved has all tensors of the original, byte by byte. */
static void expect_tensors(const nn_shards *want, const nn_shards *got, const char *name)
{
    expect(nn_shards_tensors(want) == nn_shards_tensors(got), "%s: %d tensors", name, (int)nn_shards_tensors(got));
    for (int64_t n = 0; n < nn_shards_tensors(want); n++) {
        const nn_safetensors_tensor *a = nn_shards_get(want, n), *b = nn_shards_find(got, a->name);
        bool same = b && a->dtype == b->dtype && a->rank == b->rank && a->count == b->count &&
                    memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
                    memcmp(a->data, b->data, (size_t)(a->end - a->begin)) == 0;
        expect(same, "%s: %s is another one", name, a->name);
    }
}

static void try_saving(mha_context *ctx, mha_model *m, const char *name)
{
    char path[1200];
    const char *kept = getenv("MHA_SAVED");
    mha_save_options o = MHA_SAVE_DEFAULTS;
    int64_t bytes = 0;
    for (int64_t n = 0; n < nn_shards_tensors(&m->shards); n++)
        bytes += nn_shards_get(&m->shards, n)->end - nn_shards_get(&m->shards, n)->begin;
    for (int shards = 0; shards < 2; shards++) {
        mha_model *back = NULL;
        snprintf(path, sizeof path, "%s/%s", kept ? kept : in_folder(""), name);
        if (!kept) remove_model(path);
        if (kept && !shards) continue;
        if (m->text_of) {
            expect(mha_model_save(ctx, m, path, NULL) == MHA_BAD_ARGUMENT && access(path, F_OK) != 0 &&
                       strstr(mha_context_error(ctx), "text model of a larger checkpoint"),
                   "%s: %s", name, mha_context_error(ctx));
            continue;
        }
        o.shard_bytes = shards ? bytes / 3 : 0;
        if (!expect(!mha_model_save(ctx, m, path, &o), "%s", mha_context_error(ctx))) continue;
        if (expect(!mha_model_open(ctx, &back, path, NULL), "%s", mha_context_error(ctx))) {
            expect(shards ? back->shards.count > 1 : back->shards.count == 1, "%s: %d files", name,
                   (int)back->shards.count);
            expect_tensors(&m->shards, &back->shards, name);
            expect(strcmp(mha_model_describe(m), mha_model_describe(back)) == 0, "%s: another description", name);
        }
        mha_model_free(back);
        expect(mha_model_save(ctx, m, path, NULL) == MHA_BAD_FILE &&
                   strstr(mha_context_error(ctx), "has a config.json"),
               "%s: saved twice: %s", name, mha_context_error(ctx));
        if (!kept) remove_model(path);
    }
}

/* All parts doubled, those of float32 files to the bit; gains that the file has less one may round. */
static void try_changes(mha_context *ctx, mha_model *m, const char *name)
{
    char path[1200], error[600] = "";
    mha_model *back = NULL;
    mha_tensor *parts = array(m->bound.count + 1, sizeof *parts), dense;
    const nn_save_text config = {"config.json", m->config, strlen(m->config)};
    nn_save save = {.bound = &m->bound,
                    .parts = parts,
                    .shards = &m->shards,
                    .shard_bytes = 1 << 30,
                    .text = &config,
                    .text_count = 1};
    for (int64_t n = 0; n < m->bound.count; n++) {
        float *numbers = numbers_of(ctx, m->bound.part[n], &parts[n]);
        for (int64_t i = 0; i < count_numbers(&parts[n]); i++) numbers[i] *= 2;
    }
    snprintf(path, sizeof path, "%s/changed", in_folder(""));
    remove_model(path);
    bool ok = expect(nn_family_save(path, ctx, &save, error, sizeof error), "%s", error) &&
              expect(!mha_model_open(ctx, &back, path, NULL), "%s", mha_context_error(ctx));
    for (int64_t n = 0; ok && n < m->bound.count; n++) {
        float *got = numbers_of(ctx, back->bound.part[n], &dense), *want = parts[n].data, worst = 0;
        bool rounds = m->bound.name[n] && m->bound.name[n]->plus_one;
        for (int64_t i = 0; m->bound.source[n] && i < count_numbers(&dense); i++)
            worst = fmaxf(worst, fabsf(got[i] - want[i]));
        expect(worst <= (rounds ? 1e-6f : 0), "%s: %s differs by %g", name, m->parts[n].name, (double)worst);
        free(got);
    }
    mha_model_free(back);
    remove_model(path);
    for (int64_t n = 0; n < m->bound.count; n++) free(parts[n].data);
    free(parts);
}

/* The models of MHA_MODELS/hf. */
static void for_each_model(void (*try)(mha_context *, mha_model *, const char *))
{
    const char *models = getenv("MHA_MODELS");
    char path[1000];
    int families = 0;
    snprintf(path, sizeof path, "%s/hf", models ? models : "");
    DIR *folder = models ? opendir(path) : NULL;
    if (!folder) {
        not_given("MHA_MODELS names no folder with hf/");
        return;
    }
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (struct dirent *e; (e = readdir(folder));) {
        mha_model *m = NULL;
        if (strchr(e->d_name, '.')) continue;
        snprintf(path, sizeof path, "%s/hf/%.200s", models, e->d_name);
        if (!expect(!mha_model_open(ctx, &m, path, NULL), "%s", mha_context_error(ctx))) continue;
        try(ctx, m, e->d_name);
        mha_model_free(m);
        families++;
    }
    expect(families > 0, "no model");
    closedir(folder);
    mha_context_free(ctx);
}

TEST(every_family_is_saved_as_a_folder) { for_each_model(try_saving); }

TEST(changed_parts_come_back)
{
    if (!getenv("MHA_SAVED")) for_each_model(try_changes);
}

static void try_refusals(mha_context *ctx, mha_model *m, const char *name)
{
    char path[1200];
    mha_save_options o = MHA_SAVE_DEFAULTS;
    if (strcmp(name, "gpt2") != 0) return;
    snprintf(path, sizeof path, "%s/refused", in_folder(""));
    o.shard_bytes = -1;
    expect(mha_model_save(ctx, m, path, &o) == MHA_BAD_ARGUMENT &&
               !strcmp(mha_context_error(ctx), "options.shard_bytes: is negative"),
           "%s", mha_context_error(ctx));
    expect(access(path, F_OK) != 0, "a folder was made");
    expect(mha_model_save(ctx, m, in_folder("no/such/folder"), NULL) == MHA_BAD_FILE, "saved nowhere");
    if (!expect(mkdir(path, 0777) == 0, "no folder")) return;
    char inside[1300];
    snprintf(inside, sizeof inside, "%s/generation_config.json", path); /* which a folder is in the way of */
    expect(mkdir(inside, 0777) == 0 && mha_model_save(ctx, m, path, NULL) == MHA_BAD_FILE, "written over a folder");
    expect(count_files(path) == 1, "%d files are left", count_files(path));
    rmdir(inside);
    rmdir(path);
}

TEST(what_cannot_be_saved_leaves_nothing) { for_each_model(try_refusals); }
