/* Panels of heads: one row per block, or per block and image. */
#include "cli/maps/heads.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ACROSS = 8 }; /* maximum number of heads per row */

static bool write_sheet(const char *path, maps_format format, maps_sheet sheet, char *error, size_t error_size)
{
    if (sheet.across > ACROSS) sheet.across = ACROSS;
    return maps_write(path, format, &sheet, error, error_size);
}

/* ---- A survey --------------------------------------------------------------------------------------------------- */

/* Fills the panel of head n; `at` has room for its two maps. */
static void fill_head(maps_panel *p, float *at, double *view, const survey *s, int64_t n)
{
    const mha_survey_head *h = &s->heads[n];
    int64_t patches = s->info.rows * s->info.columns, T = s->info.tokens;
    survey_map(view, s, n);
    for (int64_t j = 0; j < patches; j++) at[j] = (float)view[j];
    for (int64_t c = 0; c < T * T; c++) at[patches + c] = (float)mha_survey_map(s->of, n)[c];
    *p = (maps_panel){.map = {{at, s->info.rows, s->info.columns}, {at + patches, T, T}}, .starts_row = h->head == 0};
    snprintf(p->title, sizeof p->title, "block %" PRId64 ", head %" PRId64, h->block, h->head);
    snprintf(p->note, sizeof p->note, "%s", h->words);
}

bool maps_of_survey(const char *path, maps_format format, const char *file, const survey *s, char *error,
                    size_t error_size)
{
    int64_t patches = s->info.rows * s->info.columns, each = patches + s->info.tokens * s->info.tokens, most = 0;
    maps_panel *panels = calloc((size_t)s->info.heads, sizeof *panels);
    float *numbers = calloc((size_t)s->info.heads, (size_t)each * sizeof *numbers);
    double *view = calloc((size_t)patches, sizeof *view);
    bool ok = panels && numbers && view;
    char about[600];
    if (!ok)
        snprintf(error, error_size, "%s: not enough memory for the maps of %" PRId64 " heads", path, s->info.heads);
    for (int64_t n = 0; ok && n < s->info.heads; n++) {
        fill_head(&panels[n], numbers + n * each, view, s, n);
        if (s->heads[n].head + 1 > most) most = s->heads[n].head + 1;
    }
    snprintf(about, sizeof about, "%s, mean over %" PRId64 " images", file, s->info.close_images);
    maps_sheet sheet = {.title = "Mean attention maps",
                        .about = {about,
                                  s->info.class_token ? "left: attention of the class token to the patches"
                                                      : "left: mean attention of all patches to the patches",
                                  "right: each row is a query token, each column a key token"},
                        .panels = panels,
                        .count = s->info.heads,
                        .across = most,
                        .tokens = s->info.tokens};
    ok = ok && write_sheet(path, format, sheet, error, error_size);
    free(panels);
    free(numbers);
    free(view);
    return ok;
}

/* ---- Images ----------------------------------------------------------------------------------------------------- */

static void fill_image(maps_panel *panels, int64_t *at, const maps_image *one, int64_t block, bool named)
{
    const heads_view *v = &one->view;
    for (int64_t h = 0; h < heads_view_in(v, block); h++) {
        maps_panel *p = &panels[(*at)++];
        heads_focus f = heads_view_focus(v, block, h);
        *p = (maps_panel){.map = {{heads_view_map(v, block, h), v->rows, v->columns}}, .starts_row = h == 0};
        if (h == 0 && named) snprintf(p->heading, sizeof p->heading, "%s: predicted %d", one->name, v->best);
        snprintf(p->title, sizeof p->title, "block %" PRId64 ", head %" PRId64, block, h);
        snprintf(p->note, sizeof p->note, "about %.0f patch%s", f.patches, f.patches < 1.5 ? "" : "es");
    }
}

bool maps_of_images(const char *path, maps_format format, const char *file, const maps_image *images, int64_t count,
                    int64_t first, int64_t end, bool mean, char *error, size_t error_size)
{
    int64_t all = 0, at = 0, most = 0;
    for (int64_t i = 0; i < count; i++) {
        all += images[i].view.first[end] - images[i].view.first[first];
        most = images[i].view.heads > most ? images[i].view.heads : most;
    }
    maps_panel *panels = calloc((size_t)all + 1, sizeof *panels);
    char about[600];
    if (!panels) {
        snprintf(error, error_size, "%s: not enough memory for %" PRId64 " maps", path, all);
        return false;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t b = first; b < end; b++) fill_image(panels, &at, &images[i], b, b == first);
    snprintf(about, sizeof about, "%s: %s", file,
             mean ? "mean attention of the patches" : "attention of the class token");
    maps_sheet sheet = {.title = "Attention maps",
                        .about = {about},
                        .panels = panels,
                        .count = all,
                        .across = most,
                        .tokens = images[0].view.tokens};
    bool ok = write_sheet(path, format, sheet, error, error_size);
    free(panels);
    return ok;
}
