/* Judges evidence (see roles.h). All products are prepared so that their rows and columns sum to 0, as shuffles.h
 * requires:
 *
 *   by content    entry (a,b): what patches receive in image a, times the role's weights in image b, both without their
 *                 means over images; summed over patches. A shuffle pairs maps with the weights of other images.
 *   by position   entry (a,b): column a of the mean map times column b of the role's weights, both without the means of
 *                 rows and columns; summed over queries. A shuffle moves the keys of the map to other places.
 *
 * The means that are removed are what the head does whatever the image, or whatever the query. */
#include "inspect/roles.h"
#include "inspect/shuffles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double unit = 68719476736; /* 2^36 */

/* ---- Evidence --------------------------------------------------------------------------------------------------- */

bool nn_evidence_create(nn_evidence *e, int64_t images, int64_t heads, const nn_grid *g, bool class_token)
{
    int64_t P = nn_grid_patches(g);
    *e = (nn_evidence){.images = images, .heads = heads, .patches = P, .class_token = class_token};
    e->received = calloc((size_t)(heads * NN_FROMS * images), (size_t)P * sizeof *e->received);
    e->maps = calloc((size_t)(heads * P), (size_t)P * sizeof *e->maps);
    e->weights = calloc((size_t)(NN_ROLES_BY_CONTENT * images), (size_t)P * sizeof *e->weights);
    if (e->received && e->maps && e->weights) return true;
    nn_evidence_free(e);
    return false;
}

void nn_evidence_free(nn_evidence *e)
{
    free(e->received);
    free(e->maps);
    free(e->weights);
    *e = (nn_evidence){0};
}

static float *received(const nn_evidence *e, int64_t head, nn_role_from from, int64_t n)
{
    return e->received + ((head * NN_FROMS + (int64_t)from) * e->images + n) * e->patches;
}

bool nn_evidence_add(const nn_evidence *e, int64_t *maps, int64_t n, int64_t head, const float *map)
{
    int64_t P = e->patches, skip = e->class_token, T = P + skip;
    int64_t *sums = maps + head * P * P;
    float *patches = received(e, head, NN_FROM_PATCHES, n), *first = received(e, head, NN_FROM_CLASS, n);
    for (int64_t j = 0; j < P; j++) {
        double sum = 0;
        for (int64_t i = 0; i < P; i++) {
            double weight = (double)map[(skip + i) * T + skip + j];
            if (!(weight >= 0 && weight < 2)) return false;
            sums[i * P + j] += (int64_t)rint(weight * unit);
            sum += weight;
        }
        patches[j] = (float)(sum / (double)P);
        first[j] = skip ? map[skip + j] : 0;
        if (!(first[j] >= 0 && first[j] < 2)) return false;
    }
    return true;
}

void nn_evidence_draw(const nn_evidence *e, int64_t n, const nn_grid *g, const nn_drawing *d)
{
    for (int64_t role = 0; role < NN_ROLES_BY_CONTENT; role++)
        nn_roles_table[NN_ROLES_BY_POSITION + role].on(e->weights + (role * e->images + n) * e->patches, g, d);
}

/* ---- Products --------------------------------------------------------------------------------------------------- */

/* The roles by position, or those by content, and what their tests have in common. */
typedef struct family {
    int64_t first, count; /* roles */
    int64_t size, inner;  /* things that are shuffled; numbers that a product sums over */
    nn_shuffles shuffles;
    float *weights; /* (inner,count,size) of the roles, without their means */
    double *sizes;  /* (count) sums of squares of these */
    double *means;  /* (count,mean_count) what was removed, or enough to tell what a head without preferences gives */
    int64_t mean_count;
    double times; /* how often `means` were removed */
} family;

/* What a head does, in the same form. */
typedef struct behaviour {
    float *x;     /* (size,inner) without means */
    double *rest; /* (mean_count) the means */
    double size;  /* sum of squares of x */
} behaviour;

typedef struct judge {
    nn_roles *r;
    mha_context *ctx;
    const nn_evidence *e;
    family position, content;
    float *shuffled; /* (heads,NN_FROMS,NN_ROLES,shuffles) z */

    /* Of the head and the family whose turn it is. */
    behaviour now;
    const family *of;
    double *numbers;          /* scratch: x before rounding */
    float *products;          /* (ROWS,count,size): `rows` of them, from row `first` on */
    nn_tally tally[NN_ROLES]; /* (count) */
    double *sums;             /* (count,shuffles) theirs */
    int64_t first, rows, test;
} judge;

enum { ROWS = 64 };

static double safe_ratio(double a, double b) { return b > 0 ? a / b : 0; }

static void add_products(void *arg, int64_t role)
{
    judge *k = arg;
    const family *f = k->of;
    for (int64_t i = 0; i < k->rows; i++)
        nn_tally_add(&k->tally[role], &f->shuffles, k->first + i, k->products + (i * f->count + role) * f->size);
}

static void set_score(const judge *k, int64_t role)
{
    const family *f = k->of;
    nn_role_score *s = &k->r->scores[k->test + role];
    const double *means = f->means + role * f->mean_count;
    double gain = k->tally[role].sum, usual = 0, squares = 0;
    for (int64_t i = 0; i < f->mean_count; i++) {
        usual += f->times * k->now.rest[i] * means[i];
        squares += f->times * k->now.rest[i] * k->now.rest[i];
    }
    s->score = fmin(fmax(safe_ratio(gain, sqrt(k->now.size * f->sizes[role])), -1), 1);
    s->lift = 1 + safe_ratio(gain, usual);
    s->variation = sqrt(safe_ratio(k->now.size, squares));
    s->z = (double)nn_tally_finish(k->shuffled + (k->test + role) * k->r->shuffles, &k->tally[role], &f->shuffles);
}

static mha_status judge_family(judge *k, const family *f, int64_t head, nn_role_from from)
{
    mha_status status = MHA_OK;
    k->of = f;
    k->test = (head * NN_FROMS + (int64_t)from) * NN_ROLES + f->first;
    memset(k->sums, 0, (size_t)(f->count * k->r->shuffles) * sizeof *k->sums);
    for (int64_t role = 0; role < f->count; role++)
        k->tally[role] = (nn_tally){.sums = k->sums + role * k->r->shuffles};
    for (k->first = 0; !status && k->first < f->size; k->first += ROWS) {
        k->rows = f->size - k->first < ROWS ? f->size - k->first : ROWS;
        status = mha_matmul(k->ctx, mha_tensor_2d(k->products, MHA_FLOAT32, k->rows, f->count * f->size),
                            mha_tensor_2d(k->now.x + k->first * f->inner, MHA_FLOAT32, k->rows, f->inner),
                            mha_tensor_2d(f->weights, MHA_FLOAT32, f->inner, f->count * f->size), NULL);
        if (!status) mha_context_each(k->ctx, f->count, add_products, k);
    }
    for (int64_t role = 0; !status && role < f->count; role++) set_score(k, role);
    return status;
}

/* ---- By content ------------------------------------------------------------------------------------------------- */

/* Removes the means over N rows of x (N,P); gives them, and returns the sum of squares that is left. */
static double centre(double *means, double *x, int64_t N, int64_t P)
{
    double squares = 0;
    for (int64_t j = 0; j < P; j++) {
        double sum = 0;
        for (int64_t n = 0; n < N; n++) sum += x[n * P + j];
        means[j] = sum / (double)N;
        for (int64_t n = 0; n < N; n++) {
            x[n * P + j] -= means[j];
            squares += x[n * P + j] * x[n * P + j];
        }
    }
    return squares;
}

static void prepare_content(const judge *k, const family *f)
{
    int64_t N = k->e->images, P = k->e->patches;
    for (int64_t role = 0; role < f->count; role++) {
        for (int64_t i = 0; i < N * P; i++) k->numbers[i] = (double)k->e->weights[role * N * P + i];
        f->sizes[role] = centre(f->means + role * P, k->numbers, N, P);
        for (int64_t n = 0; n < N; n++)
            for (int64_t j = 0; j < P; j++) f->weights[(j * f->count + role) * N + n] = (float)k->numbers[n * P + j];
    }
}

static mha_status judge_content(judge *k, int64_t head, nn_role_from from)
{
    int64_t N = k->e->images, P = k->e->patches;
    const float *x = received(k->e, head, from, 0);
    for (int64_t i = 0; i < N * P; i++) k->numbers[i] = (double)x[i];
    k->now.size = centre(k->now.rest, k->numbers, N, P);
    for (int64_t i = 0; i < N * P; i++) k->now.x[i] = (float)k->numbers[i];
    return judge_family(k, &k->content, head, from);
}

/* ---- By position ------------------------------------------------------------------------------------------------ */

/* Removes the means of rows and columns of x (P,P); returns the sum of squares that is left. */
static double centre_both(double *x, int64_t P)
{
    double squares = 0;
    for (int along = 0; along < 2; along++) {
        int64_t row = along ? P : 1, column = along ? 1 : P;
        for (int64_t i = 0; i < P; i++) {
            double sum = 0;
            for (int64_t j = 0; j < P; j++) sum += x[i * row + j * column];
            for (int64_t j = 0; j < P; j++) x[i * row + j * column] -= sum / (double)P;
        }
    }
    for (int64_t i = 0; i < P * P; i++) squares += x[i] * x[i];
    return squares;
}

static void prepare_position(const judge *k, const family *f)
{
    int64_t P = k->e->patches;
    for (int64_t role = 0; role < f->count; role++) {
        double *whole = f->means + role * P * P;
        for (int64_t i = 0; i < P * P; i++)
            whole[i] = k->numbers[i] = nn_roles_table[f->first + role].between(&k->r->grid, i / P, i % P);
        f->sizes[role] = centre_both(k->numbers, P);
        for (int64_t i = 0; i < P; i++)
            for (int64_t j = 0; j < P; j++) f->weights[(i * f->count + role) * P + j] = (float)k->numbers[i * P + j];
    }
}

static mha_status judge_position(judge *k, int64_t head)
{
    int64_t P = k->e->patches;
    for (int64_t i = 0; i < P * P; i++)
        k->now.rest[i] = k->numbers[i] = (double)k->e->maps[head * P * P + i] / unit / (double)k->e->images;
    k->now.size = centre_both(k->numbers, P);
    for (int64_t i = 0; i < P * P; i++) {
        k->now.x[i % P * P + i / P] = (float)k->numbers[i]; /* keys are shuffled, queries summed over */
        k->now.rest[i] -= k->numbers[i];
    }
    return judge_family(k, &k->position, head, NN_FROM_PATCHES);
}

/* ---- Significance ----------------------------------------------------------------------------------------------- */

/* The largest z of each shuffle over all heads and roles: what some role of some head reaches by chance (Westfall and
 * Young, 1993). Tests that do not exist have z of 0. */
static void find_significance(const judge *k, float *largest)
{
    nn_roles *r = k->r;
    int64_t K = r->shuffles, tests = r->heads * NN_FROMS * NN_ROLES;
    for (int64_t s = 0; s < K; s++) largest[s] = 0;
    for (int64_t t = 0; t < tests; t++)
        for (int64_t s = 0; s < K; s++) largest[s] = fmaxf(largest[s], k->shuffled[t * K + s]);
    for (int64_t t = 0; t < tests; t++) {
        nn_role_score *score = &r->scores[t];
        int64_t alone = 1, any = 1;
        for (int64_t s = 0; s < K; s++) {
            alone += k->shuffled[t * K + s] >= (float)score->z;
            any += largest[s] >= (float)score->z;
        }
        score->p_alone = (double)alone / (double)(K + 1);
        score->p = (double)any / (double)(K + 1);
        score->named = score->p <= r->level && score->score >= NN_ROLES_LEAST_SCORE &&
                       score->variation >= NN_ROLES_LEAST_VARIATION;
    }
}

/* ---- All -------------------------------------------------------------------------------------------------------- */

static bool make_family(family *f, const nn_roles_options *o)
{
    f->weights = calloc((size_t)(f->inner * f->count), (size_t)f->size * sizeof *f->weights);
    f->sizes = calloc((size_t)f->count, sizeof *f->sizes);
    f->means = calloc((size_t)f->count, (size_t)f->mean_count * sizeof *f->means);
    return f->weights && f->sizes && f->means &&
           nn_shuffles_draw(&f->shuffles, o->shuffles, f->size, o->seed, (uint32_t)f->first);
}

static void free_family(family *f)
{
    nn_shuffles_free(&f->shuffles);
    free(f->weights);
    free(f->sizes);
    free(f->means);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static bool make_room(judge *k, const nn_roles_options *o)
{
    int64_t N = k->e->images, P = k->e->patches, tests = k->r->heads * NN_FROMS * NN_ROLES;
    size_t numbers = (size_t)larger(N * P, P * P);
    size_t products = (size_t)larger(NN_ROLES_BY_CONTENT * N, NN_ROLES_BY_POSITION * P);
    k->position = (family){.count = NN_ROLES_BY_POSITION, .size = P, .inner = P, .mean_count = P * P, .times = 1};
    k->content = (family){.first = NN_ROLES_BY_POSITION,
                          .count = NN_ROLES_BY_CONTENT,
                          .size = N,
                          .inner = P,
                          .mean_count = P,
                          .times = (double)N};
    k->now.x = calloc(numbers, sizeof *k->now.x);
    k->now.rest = calloc(numbers, sizeof *k->now.rest);
    k->numbers = calloc(numbers, sizeof *k->numbers);
    k->products = calloc(products, ROWS * sizeof *k->products);
    k->shuffled = calloc((size_t)tests + 1, (size_t)o->shuffles * sizeof *k->shuffled);
    k->sums = calloc(NN_ROLES, (size_t)o->shuffles * sizeof *k->sums);
    return k->now.x && k->now.rest && k->numbers && k->products && k->shuffled && k->sums &&
           make_family(&k->position, o) && make_family(&k->content, o);
}

bool nn_roles_judge(nn_roles *r, mha_context *ctx, const nn_evidence *e, const nn_roles_options *o)
{
    judge k = {.r = r, .ctx = ctx, .e = e};
    r->images = e->images;
    r->shuffles = o->shuffles;
    r->level = o->level;
    bool ok = make_room(&k, o);
    if (ok) {
        prepare_position(&k, &k.position);
        prepare_content(&k, &k.content);
    }
    for (int64_t head = 0; ok && head < r->heads; head++) {
        ok = !judge_position(&k, head);
        for (int from = 0; ok && from < r->froms; from++) ok = !judge_content(&k, head, (nn_role_from)from);
    }
    if (ok) find_significance(&k, k.shuffled + r->heads * NN_FROMS * NN_ROLES * r->shuffles);
    free_family(&k.position);
    free_family(&k.content);
    free(k.now.x);
    free(k.now.rest);
    free(k.numbers);
    free(k.products);
    free(k.shuffled);
    free(k.sums);
    return ok;
}

int64_t nn_roles_best(const nn_roles *r, int64_t head, nn_role_from from, bool position)
{
    int64_t best = -1;
    for (int64_t role = 0; role < NN_ROLES; role++) {
        const nn_role_score *s = nn_roles_get(r, head, from, role);
        if (!s->named || (role < NN_ROLES_BY_POSITION) != position) continue;
        if (best < 0 || s->score > nn_roles_get(r, head, from, best)->score) best = role;
    }
    return best;
}
