#include "public/picture_keys.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The same for numbers per channel: one for all, or an array. */
static bool read_channels(float *to, nn_fact from)
{
    double x;
    int64_t count = nn_fact_count(from);
    bool one = nn_fact_real(from, &x);
    if (!one && (count < 1 || count > 4)) return false;
    for (int64_t n = 0; n < 4; n++) {
        if (!one && n < count && !nn_fact_real(nn_fact_item(from, n), &x)) return false;
        to[n] = (float)x;
    }
    return true;
}

static bool read_normal(nn_picture_config *to, const nn_config *c, const char *mean, const char *deviation,
                        const nn_failure *failure)
{
    if (!read_channels(to->mean, nn_config_find(c, mean)) ||
        !read_channels(to->deviation, nn_config_find(c, deviation)))
        return nn_fail(failure, "%s and %s must be numbers, one per channel", mean, deviation);
    for (int n = 0; n < 4; n++)
        if (!(to->deviation[n] > 0)) return nn_fail(failure, "%s must be above 0", deviation);
    return true;
}

/* ---- transformers ----------------------------------------------------------------------------------------------- */

/* The image processors that do nothing else, and what they do where their file does not say. */
static const struct processor {
    const char *name;
    int64_t resample;
    bool crops, shortest; /* crops; a size that is one number is that of the shorter side */
} processors[] = {{"ViTImageProcessor", 2, false, false},
                  {"ViTFeatureExtractor", 2, false, false},
                  {"DeiTImageProcessor", 3, true, false},
                  {"DeiTFeatureExtractor", 3, true, false},
                  {"BitImageProcessor", 3, true, true}};

static const struct processor *find_processor(const char *name)
{
    for (size_t n = 0; n < sizeof processors / sizeof *processors; n++) {
        size_t length = strlen(processors[n].name);
        if (strncmp(name, processors[n].name, length) != 0) continue;
        if (!name[length] || strcmp(name + length, "Fast") == 0 || strcmp(name + length, "Pil") == 0)
            return &processors[n];
    }
    return NULL;
}

/* A switch of the file; `otherwise` if it is not there. */
static bool is_on(const nn_config *c, const char *key, bool otherwise)
{
    bool on = otherwise;
    nn_fact_truth(nn_config_find(c, key), &on);
    return on;
}

static bool in_range(int64_t n) { return n >= 1 && n <= NN_IMAGE_SIDE_MOST; }

static bool read_filter(nn_picture_config *to, const nn_config *c, int64_t resample, const nn_failure *failure)
{
    static const nn_filter filters[] = {NN_FILTER_NONE, NN_FILTER_LANCZOS, NN_FILTER_BILINEAR, NN_FILTER_BICUBIC};
    nn_fact_int(nn_config_find(c, "resample"), &resample);
    if (resample < 1 || resample > 3)
        return nn_fail(failure, "resample is %lld, which is not supported; 1, 2 and 3 are (Lanczos, bilinear, bicubic)",
                       (long long)resample);
    to->filter = filters[resample];
    return true;
}

static bool read_size(nn_picture_config *to, const nn_config *c, bool shortest, const nn_failure *failure)
{
    int64_t side = 0;
    nn_fact size = nn_config_find(c, "size");
    bool pair =
        nn_fact_int(nn_fact_find(size, "height"), &to->rows) && nn_fact_int(nn_fact_find(size, "width"), &to->columns);
    if (pair && in_range(to->rows) && in_range(to->columns)) return true;
    to->rows = to->columns = 0;
    bool one = nn_fact_int(size, &side), edge = nn_fact_int(nn_fact_find(size, "shortest_edge"), &side);
    if (nn_fact_find(size, "longest_edge").text || !(one || edge) || !in_range(side))
        return nn_fail(failure, "size must have height and width, or shortest_edge, of at most %d", NN_IMAGE_SIDE_MOST);
    if (edge || shortest) to->shortest = side;
    else to->rows = to->columns = side;
    return true;
}

static bool read_crop(nn_picture_config *to, const nn_config *c, const nn_failure *failure)
{
    int64_t side;
    nn_fact crop = nn_config_find(c, "crop_size");
    if (nn_fact_int(crop, &side)) to->crop_rows = to->crop_columns = side;
    else if (!nn_fact_int(nn_fact_find(crop, "height"), &to->crop_rows) ||
             !nn_fact_int(nn_fact_find(crop, "width"), &to->crop_columns))
        return nn_fail(failure, "crop_size must have height and width");
    return (in_range(to->crop_rows) && in_range(to->crop_columns)) ||
           nn_fail(failure, "crop_size must be from 1 to %d", NN_IMAGE_SIDE_MOST);
}

bool nn_picture_read_transformers(nn_picture_config *to, const nn_config *c, const nn_failure *failure)
{
    char name[80] = "";
    *to = (nn_picture_config){.scale = 1, .deviation = {1, 1, 1, 1}};
    nn_fact type = nn_config_find(c, "image_processor_type|feature_extractor_type");
    if (!nn_fact_string(type, name, sizeof name)) return nn_fail(failure, "image_processor_type is missing");
    const struct processor *p = find_processor(name);
    if (!p)
        return nn_fail(failure, "image_processor_type is %s, which is not supported; those of ViT, DeiT and BiT are",
                       nn_json_brief(name).text);
    if (is_on(c, "do_pad", false)) return nn_fail(failure, "do_pad is not supported");
    if (is_on(c, "do_resize", true) &&
        (!read_filter(to, c, p->resample, failure) || !read_size(to, c, p->shortest, failure)))
        return false;
    if (p->crops && is_on(c, "do_center_crop", true) && !read_crop(to, c, failure)) return false;
    if (is_on(c, "do_rescale", true)) {
        to->scale = 1.0 / 255;
        nn_fact_real(nn_config_find(c, "rescale_factor"), &to->scale);
        if (!(to->scale > 0)) return nn_fail(failure, "rescale_factor must be above 0");
    }
    return !is_on(c, "do_normalize", true) || read_normal(to, c, "image_mean", "image_std", failure);
}

/* ---- timm ------------------------------------------------------------------------------------------------------- */

bool nn_picture_read_timm(nn_picture_config *to, const nn_config *c, int64_t rows, int64_t columns,
                          const nn_failure *failure)
{
    static const struct {
        const char *name;
        nn_filter filter;
    } filters[] = {{"bilinear", NN_FILTER_BILINEAR}, {"bicubic", NN_FILTER_BICUBIC}, {"lanczos", NN_FILTER_LANCZOS}};
    char mode[40] = "center", filter[40] = "";
    double share = 0;
    *to = (nn_picture_config){.scale = 1.0 / 255, .round_crop = true};
    if (!nn_fact_string(nn_config_find(c, "pretrained_cfg.interpolation"), filter, sizeof filter) ||
        !nn_fact_real(nn_config_find(c, "pretrained_cfg.crop_pct"), &share) || !(share > 0 && share <= 1))
        return nn_fail(failure, "pretrained_cfg must have interpolation, and crop_pct above 0 and up to 1");
    for (size_t n = 0; n < sizeof filters / sizeof *filters; n++)
        if (strcmp(filter, filters[n].name) == 0) to->filter = filters[n].filter;
    if (!to->filter) return nn_fail(failure, "interpolation is %s, which is not supported", nn_json_brief(filter).text);
    nn_fact_string(nn_config_find(c, "pretrained_cfg.crop_mode"), mode, sizeof mode);
    if ((double)(rows > columns ? rows : columns) / share > NN_IMAGE_SIDE_MOST)
        return nn_fail(failure, "crop_pct is so small that pictures would have more than %d rows or columns",
                       NN_IMAGE_SIDE_MOST);
    if (strcmp(mode, "squash") == 0)
        to->rows = (int64_t)floor((double)rows / share), to->columns = (int64_t)floor((double)columns / share);
    else if (strcmp(mode, "center") == 0 && rows == columns) to->shortest = (int64_t)floor((double)rows / share);
    else
        return nn_fail(failure, "crop_mode is %s%s, which is not supported", nn_json_brief(mode).text,
                       rows == columns ? "" : " for pictures that are not square");
    to->crop_rows = rows, to->crop_columns = columns;
    return read_normal(to, c, "pretrained_cfg.mean", "pretrained_cfg.std", failure);
}
