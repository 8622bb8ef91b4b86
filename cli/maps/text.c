#include "cli/maps/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACROSS = 6, SHOWN = 40, REPEATED = 80 }; /* heads per row; tokens of a map, and of one over repeated tokens */

/* The first rows and columns of a map, without the first row, which in a causal head always is a single 1. */
static maps_map part_of(float **at, const float *map, int64_t rows, int64_t columns, int64_t most)
{
    int64_t skip = rows > 1, high = rows < most ? rows : most, wide = columns < most ? columns : most;
    maps_map part = {*at, high - skip, wide};
    for (int64_t i = skip; i < high; i++, *at += wide) memcpy(*at, map + i * columns, (size_t)wide * sizeof **at);
    return part;
}

/* The same of a map over many frames: a column is the sum over those that are next to each other. */
static maps_map pooled(float **at, const float *map, int64_t rows, int64_t columns)
{
    int64_t skip = rows > 1, high = rows < SHOWN ? rows : SHOWN, by = (columns + SHOWN - 1) / SHOWN;
    int64_t wide = (columns + by - 1) / by;
    maps_map part = {*at, high - skip, wide};
    for (int64_t i = skip; i < high; i++, *at += wide)
        for (int64_t j = 0; j < columns; j++) (*at)[j / by] += map[i * columns + j];
    return part;
}

static void fill_panel(maps_panel *p, float **at, const mha_text_survey *survey, int64_t n, const mha_text_head *h,
                       bool audio)
{
    int64_t queries, keys, tokens;
    const float *map = mha_text_survey_map(survey, n, &queries, &keys);
    const float *repeat = mha_text_survey_repeat_map(survey, n, &tokens);
    *p = (maps_panel){.starts_row = h->head == 0};
    p->map[0] = h->cross && audio ? pooled(at, map, queries, keys) : part_of(at, map, queries, keys, SHOWN);
    if (repeat) p->map[1] = part_of(at, repeat, tokens, tokens, REPEATED);
    snprintf(p->title, sizeof p->title, "block %" PRId64 ", head %" PRId64, h->block, h->head);
    snprintf(p->note, sizeof p->note, "%s", h->words);
    if (h->head == 0 && h->block == 0)
        snprintf(p->heading, sizeof p->heading, "%s",
                 h->cross     ? "Cross-attention of the decoder"
                 : h->decoder ? "Decoder"
                              : "Encoder");
}

bool maps_of_text(const char *path, maps_format format, const char *file, const mha_text_survey *survey,
                  const mha_text_survey_info *info, const mha_text_head *heads, char *error, size_t error_size)
{
    maps_panel *panels = calloc((size_t)info->heads, sizeof *panels);
    float *numbers = calloc((size_t)info->heads * (SHOWN * SHOWN + REPEATED * REPEATED), sizeof *numbers);
    int64_t most = 0;
    char about[600];
    bool ok = panels && numbers;
    if (!ok) snprintf(error, error_size, "%s: not enough memory for the maps of %" PRId64 " heads", path, info->heads);
    float *at = numbers;
    for (int64_t n = 0; ok && n < info->heads; n++) {
        fill_panel(&panels[n], &at, survey, n, &heads[n], info->audio);
        if (heads[n].head + 1 > most) most = heads[n].head + 1;
    }
    if (info->same)
        snprintf(about, sizeof about, "%s, mean over %" PRId64 " window%s", file, info->windows,
                 info->windows == 1 ? "" : "s");
    else
        snprintf(about, sizeof about, "%s, the first of %" PRId64 " text%s", file, info->windows,
                 info->windows == 1 ? "" : "s");
    maps_sheet sheet = {
        .title = info->same ? "Mean attention maps" : "Attention maps",
        .about = {about,
                  info->audio
                      ? "each row is a query token, from the second on; columns of cross-attention are spans of time"
                      : "each row is a query token, from the second on; each column a key token",
                  info->repeats ? "left: of the text, the first 40 tokens; right: of repeated random tokens" : NULL},
        .panels = panels,
        .count = info->heads,
        .across = most > ACROSS ? ACROSS : most,
        .tokens = SHOWN};
    ok = ok && maps_write(path, format, &sheet, error, error_size);
    free(panels);
    free(numbers);
    return ok;
}
