/* Sums over the rows of all sequences, then means, then words (see survey.h). */
#include "inspect/text/survey.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sums of a head, over rows. */
typedef struct tally {
    double rows, entropy, uniform, effective, largest, distance, uniform_distance;
    double offset[NN_TEXT_OFFSETS], offset_rows[NN_TEXT_OFFSETS]; /* of the key at an offset; rows that have it */
    double first, first_rows, last, last_rows;
    double monotone, monotone_sequences;
    double duplicate, induction, chance, repeat_rows;
} tally;

typedef struct look {
    const nn_description *d;
    const nn_text_plan *plan;
    nn_text_survey *s;
    tally *tallies; /* (count) */
} look;

/* ---- One row ---------------------------------------------------------------------------------------------------- */

/* The keys that query i of an attention may see: from *first to below *end. */
static void visible(const nn_description *d, const nn_attention_place *a, int64_t i, int64_t Tk, int64_t *first,
                    int64_t *end)
{
    const nn_blocks_config *b = a->decoder ? &d->decoder.blocks : &d->encoder.blocks;
    const nn_attention_config *c = nn_blocks_attention(b, a->block);
    *first = 0, *end = Tk;
    if (a->cross) return;
    if (c->window_left != MHA_UNLIMITED && i - c->window_left > 0) *first = i - c->window_left;
    if (c->window_right != MHA_UNLIMITED && i + c->window_right + 1 < Tk) *end = i + c->window_right + 1;
    if (b->causal) *end = i + 1;
}

static void add_shape(tally *t, const float *row, int64_t Tk)
{
    double entropy = 0, squares = 0, largest = 0;
    for (int64_t j = 0; j < Tk; j++) {
        double p = (double)row[j];
        if (!(p > 0)) continue;
        entropy -= p * log(p);
        squares += p * p;
        largest = fmax(largest, p);
    }
    t->rows++;
    t->entropy += entropy;
    t->effective += squares > 0 ? 1 / squares : 0;
    t->largest += largest;
}

/* What needs queries and keys to be the same tokens. */
static void add_places(tally *t, const float *row, int64_t i, int64_t Tk, int64_t first, int64_t end)
{
    double distance = 0, equal = 0;
    for (int64_t j = first; j < end; j++) {
        distance += (double)row[j] * (double)llabs(i - j);
        equal += (double)llabs(i - j);
    }
    t->distance += distance;
    t->uniform_distance += equal / (double)(end - first);
    for (int64_t n = 0; n < NN_TEXT_OFFSETS; n++) {
        int64_t j = i + n - NN_TEXT_REACH;
        if (j < first || j >= end) continue;
        t->offset[n] += (double)row[j];
        t->offset_rows[n]++;
    }
    if (i > 0 && first == 0) t->first += (double)row[0], t->first_rows++;
    if (i < Tk - 1 && end == Tk) t->last += (double)row[Tk - 1], t->last_rows++;
}

/* ---- One sequence ----------------------------------------------------------------------------------------------- */

/* The correlation of a query's position and the mean position of its keys; 0 if either does not change. */
static double order_of(const float *map, int64_t Tq, int64_t Tk)
{
    double sx = 0, sy = 0, xx = 0, yy = 0, xy = 0, n = (double)Tq;
    for (int64_t i = 0; i < Tq; i++) {
        double x = (double)i, y = 0;
        for (int64_t j = 0; j < Tk; j++) y += (double)map[i * Tk + j] * (double)j;
        sx += x, sy += y, xx += x * x, yy += y * y, xy += x * y;
    }
    double vx = xx - sx * sx / n, vy = yy - sy * sy / n;
    return vx > 0 && vy > 1e-9 * n ? (xy - sx * sy / n) / sqrt(vx * vy) : 0;
}

static void add_head(const look *k, const nn_attention_place *a, tally *t, const float *map, int64_t Tq, int64_t Tk)
{
    for (int64_t i = 0; i < Tq; i++) {
        int64_t first, end;
        const float *row = map + i * Tk;
        visible(k->d, a, i, Tk, &first, &end);
        add_shape(t, row, Tk);
        t->uniform += log((double)(end - first));
        if (!a->cross) {
            add_places(t, row, i, Tk, first, end);
            continue;
        }
        t->first += (double)row[0], t->first_rows++;
        t->last += (double)row[Tk - 1], t->last_rows++;
    }
    if (a->cross && Tq > 2) t->monotone += order_of(map, Tq, Tk), t->monotone_sequences++;
}

static void add_sequence(void *arg, int64_t n, const float *const *maps)
{
    const look *k = arg;
    nn_text_survey *s = k->s;
    const int64_t *T = k->plan->sequences[n].T;
    for (int64_t h = 0; h < s->count; h++) {
        const nn_text_head *head = &s->heads[h];
        const nn_attention_place *a = &head->place;
        int64_t Tq = T[a->decoder], Tk = a->cross ? T[0] : Tq;
        const float *map = maps[head->attention] + head->head * Tq * Tk;
        float *to = s->maps + s->map_from[h];
        add_head(k, a, &k->tallies[h], map, Tq, Tk);
        for (int64_t c = 0; (s->same || n == 0) && c < Tq * Tk; c++) to[c] += map[c];
    }
}

static void add_repeat(void *arg, int64_t n, const float *const *maps)
{
    const look *k = arg;
    const nn_text_plan *p = k->plan;
    for (int64_t h = 0; h < k->s->count; h++) {
        const nn_text_head *head = &k->s->heads[h];
        const nn_attention_place *a = &head->place;
        tally *t = &k->tallies[h];
        if (a->cross) continue;
        int64_t T = p->repeats[n].T[a->decoder], second = p->begin[a->decoder] + p->length, first, end;
        const float *map = maps[head->attention] + head->head * T * T;
        float *to = k->s->repeat_maps + k->s->repeat_from[h];
        for (int64_t c = 0; c < T * T; c++) to[c] += map[c];
        for (int64_t i = second; i < second + p->length; i++) {
            t->duplicate += (double)map[i * T + i - p->length];
            t->induction += (double)map[i * T + i - p->length + 1];
            visible(k->d, a, i, T, &first, &end);
            t->chance += 1 / (double)(end - first);
            t->repeat_rows++;
        }
    }
}

/* ---- Means ------------------------------------------------------------------------------------------------------ */

static double mean(double sum, double count) { return count > 0 ? sum / count : (double)NAN; }

/* Of what the entropy lacks: what all sequences have in common, by position, and the rest. */
static void split(nn_text_head *h, const float *map, int64_t rows, int64_t columns)
{
    double common = 0;
    for (int64_t c = 0; c < rows * columns; c++)
        if (map[c] > 0) common -= (double)map[c] * log((double)map[c]);
    common /= (double)rows;
    h->position = h->uniform - common;
    h->content = common - h->entropy;
}

static void fill_head(nn_text_survey *s, nn_text_head *h, const tally *t)
{
    h->entropy = mean(t->entropy, t->rows);
    h->uniform = mean(t->uniform, t->rows);
    h->effective = mean(t->effective, t->rows);
    h->largest = mean(t->largest, t->rows);
    h->distance = h->place.cross ? (double)NAN : mean(t->distance, t->rows);
    h->uniform_distance = h->place.cross ? (double)NAN : mean(t->uniform_distance, t->rows);
    h->self = mean(t->offset[NN_TEXT_REACH], t->offset_rows[NN_TEXT_REACH]);
    h->previous = mean(t->offset[NN_TEXT_REACH - 1], t->offset_rows[NN_TEXT_REACH - 1]);
    h->next = mean(t->offset[NN_TEXT_REACH + 1], t->offset_rows[NN_TEXT_REACH + 1]);
    h->first = mean(t->first, t->first_rows);
    h->last = mean(t->last, t->last_rows);
    h->duplicate = mean(t->duplicate, t->repeat_rows);
    h->induction = mean(t->induction, t->repeat_rows);
    h->chance = mean(t->chance, t->repeat_rows);
    h->monotone = mean(t->monotone, t->monotone_sequences);
    h->position = h->content = (double)NAN;
    for (int64_t n = 0; n < NN_TEXT_OFFSETS; n++) {
        double weight = mean(t->offset[n], t->offset_rows[n]);
        if (n == NN_TEXT_REACH || 2 * t->offset_rows[n] < t->rows || !(weight > h->offset_weight)) continue;
        h->offset = n - NN_TEXT_REACH;
        h->offset_weight = weight;
    }
    int64_t Tq = s->T[h->place.decoder], Tk = h->place.cross ? s->T[0] : Tq;
    if (s->same && s->sequences >= NN_TEXT_SPLITS && !h->place.cross)
        split(h, s->maps + s->map_from[h - s->heads], Tq, Tk);
    nn_text_describe(h);
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

static void plan_heads(nn_text_survey *s, const nn_description *d)
{
    int64_t n = 0;
    for (int64_t a = 0; a < nn_description_attentions(d); a++) {
        nn_attention_place place = nn_description_attention(d, a);
        for (int64_t h = 0; h < place.heads && nn_text_has_maps(d, &place); h++, n++) {
            s->heads[n] = (nn_text_head){.place = place, .attention = a, .head = h, .audio = s->audio};
            int64_t Tq = s->T[place.decoder], Tk = place.cross ? s->T[0] : Tq;
            s->map_from[n + 1] = s->map_from[n] + Tq * Tk;
            s->repeat_from[n + 1] = s->repeat_from[n] + (place.cross ? 0 : s->R[place.decoder] * s->R[place.decoder]);
        }
    }
}

static bool prepare(look *k, nn_text_survey *s, const nn_description *d, const nn_text_plan *plan)
{
    *s = (nn_text_survey){.sequences = plan->count, .repeats = plan->repeat_count};
    for (int64_t a = 0; a < nn_description_attentions(d); a++) {
        nn_attention_place place = nn_description_attention(d, a);
        if (nn_text_has_maps(d, &place)) s->count += place.heads;
        else s->audio = true;
    }
    memcpy(s->T, plan->sequences[0].T, sizeof s->T);
    if (plan->repeat_count) memcpy(s->R, plan->repeats[0].T, sizeof s->R);
    s->same = true;
    for (int64_t n = 1; n < plan->count; n++) s->same &= memcmp(plan->sequences[n].T, s->T, sizeof s->T) == 0;
    *k = (look){.d = d, .plan = plan, .s = s, .tallies = calloc((size_t)s->count, sizeof *k->tallies)};
    s->heads = calloc((size_t)s->count, sizeof *s->heads);
    s->map_from = calloc((size_t)s->count + 1, sizeof *s->map_from);
    s->maps = calloc((size_t)nn_text_maps_lay(NULL, NULL, d, 1, s->T) + 1, sizeof *s->maps);
    s->repeat_from = calloc((size_t)s->count + 1, sizeof *s->repeat_from);
    if (!k->tallies || !s->heads || !s->map_from || !s->maps || !s->repeat_from) return false;
    plan_heads(s, d);
    s->repeat_maps = calloc((size_t)s->repeat_from[s->count] + 1, sizeof *s->repeat_maps);
    return s->repeat_maps;
}

static void longest_of(int64_t T[2], const nn_text_plan *plan)
{
    for (int64_t n = 0; n < plan->count + plan->repeat_count; n++) {
        const nn_text_sequence *one = n < plan->count ? &plan->sequences[n] : &plan->repeats[n - plan->count];
        for (int s = 0; s < 2; s++)
            if (one->T[s] > T[s]) T[s] = one->T[s];
    }
}

bool nn_text_survey_make(nn_text_survey *s, mha_context *ctx, nn_model *net, const nn_text_plan *plan, char *error,
                         size_t error_size)
{
    look k;
    nn_text_pass p = {0};
    int64_t T[2] = {0, 0};
    bool ok = prepare(&k, s, nn_model_description(net), plan);
    if (!ok) snprintf(error, error_size, "not enough memory for the maps of %lld heads", (long long)s->count);
    longest_of(T, plan);
    ok = ok && nn_text_pass_open(&p, ctx, net, T, error, error_size) &&
         nn_text_pass_run(&p, plan->sequences, plan->count, add_sequence, &k, error, error_size) &&
         nn_text_pass_run(&p, plan->repeats, plan->repeat_count, add_repeat, &k, error, error_size);
    for (int64_t c = 0; ok && s->same && c < s->map_from[s->count]; c++) s->maps[c] /= (float)plan->count;
    for (int64_t c = 0; ok && c < s->repeat_from[s->count]; c++) s->repeat_maps[c] /= (float)plan->repeat_count;
    for (int64_t n = 0; ok && n < s->count; n++) fill_head(s, &s->heads[n], &k.tallies[n]);
    nn_text_pass_close(&p);
    free(k.tallies);
    if (!ok) nn_text_survey_free(s);
    return ok;
}

void nn_text_survey_free(nn_text_survey *s)
{
    free(s->heads);
    free(s->maps);
    free(s->map_from);
    free(s->repeat_maps);
    free(s->repeat_from);
    *s = (nn_text_survey){0};
}
