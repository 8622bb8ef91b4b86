/* Cross-entropy with label smoothing. With top the largest logit of a row, e = exp(x - top) and S = sum of e:
 *
 *     log softmax(x)[c] = (x[c] - top) - log S
 *     loss = log S - (1 - smoothing) (x[label] - top) - smoothing * mean(x - top)
 *
 * Nothing here can overflow. The loss of a row is float64 from S on; the losses of a chunk, and then the chunks, are
 * added in order. A row is copied and padded to full sets of lanes with one of its own logits. */
#include "ops/chunks.h"
#include "ops/functions.h"
#include "ops/lanes.h"
#include "ops/ops.h"

enum { CLASSES = 256 }; /* rows with more classes are copied to the workspace instead of the stack */

typedef struct loss_job {
    float *dlogits;
    const float *logits;
    const int32_t *labels;
    nn_loss *partials; /* (chunks): sums, not means */
    float *room;       /* (chunks,padded classes), or NULL */
    int64_t rows, classes, counted;
    float smoothing;
} loss_job;

/* In place: x (padded) in e becomes e (padded) = exp(x - top), with zeros in the last `padded - classes` places; total
 * is their sum. Returns top. */
NN_CLONES static float exponentials(float *restrict e, float *restrict total, int64_t classes, int64_t padded)
{
    float tops[NN_LANES], lanes[NN_LANES], top = -INFINITY;
    for (int l = 0; l < NN_LANES; l++) tops[l] = e[l];
    for (int64_t i = NN_LANES; i < padded; i += NN_LANES)
        for (int l = 0; l < NN_LANES; l++) tops[l] = e[i + l] > tops[l] ? e[i + l] : tops[l];
    for (int l = 0; l < NN_LANES; l++) top = tops[l] > top ? tops[l] : top;
    for (int64_t i = 0; i < padded; i += NN_LANES) nn_store(e + i, nn_exp(nn_load(e + i) - top));
    for (int64_t i = classes; i < padded; i++) e[i] = 0;
    nn_lanes_clear(lanes);
    for (int64_t i = 0; i < padded; i += NN_LANES)
        for (int l = 0; l < NN_LANES; l++) lanes[l] += e[i + l];
    *total = nn_lanes_total(lanes);
    return top;
}

/* dx (classes) = (e/total - target) / rows */
NN_CLONES static void write_gradient(float *restrict dx, const float *restrict e, float total, int64_t label,
                                     const loss_job *j)
{
    const float share = j->smoothing / (float)j->classes, by = 1 / (float)j->counted, inverse = 1 / total;
    for (int64_t c = 0; c < j->classes; c++) dx[c] = (e[c] * inverse - share) * by;
    dx[label] = (e[label] * inverse - (1 - j->smoothing + share)) * by;
}

static int64_t padded_of(int64_t classes) { return (classes + NN_LANES - 1) / NN_LANES * NN_LANES; }

static int64_t first_of(const float *x, float top, int64_t classes)
{
    int64_t c = 0;
    while (c < classes && x[c] != top) c++;
    return c;
}

static void loss_row(const loss_job *j, int64_t r, float *e, nn_loss *sum)
{
    const float *x = j->logits + r * j->classes;
    const int64_t padded = padded_of(j->classes), label = j->labels[r];
    float total;
    if (label < 0) {
        for (int64_t c = 0; j->dlogits && c < j->classes; c++) j->dlogits[r * j->classes + c] = 0;
        return;
    }
    memcpy(e, x, (size_t)j->classes * sizeof *e);
    for (int64_t c = j->classes; c < padded; c++) e[c] = x[0];
    const float top = exponentials(e, &total, j->classes, padded);
    if (j->dlogits) write_gradient(j->dlogits + r * j->classes, e, total, label, j);

    double others = 0, smoothing = (double)j->smoothing;
    for (int64_t c = 0; smoothing > 0 && c < j->classes; c++) others += (double)x[c] - (double)top;
    sum->mean += log((double)total) - (1 - smoothing) * ((double)x[label] - (double)top) -
                 smoothing * others / (double)j->classes;
    sum->correct += first_of(x, top, j->classes) == label;
}

static void loss_chunk(void *arg, int64_t n)
{
    const loss_job *j = arg;
    const int64_t first = n * NN_CHUNK, end = first + nn_chunk_rows(j->rows, n), padded = padded_of(j->classes);
    float stack[CLASSES];
    nn_loss sum = {0};
    for (int64_t r = first; r < end; r++) loss_row(j, r, j->room ? j->room + n * padded : stack, &sum);
    j->partials[n] = sum;
}

mha_status nn_cross_entropy(mha_context *ctx, nn_workspace *workspace, nn_loss *loss, float *dlogits,
                            const float *logits, const int32_t *labels, int64_t rows, int64_t classes, float smoothing)
{
    const int64_t chunks = nn_chunks(rows), room = classes > CLASSES ? chunks * padded_of(classes) : 0;
    const size_t bytes = (size_t)chunks * sizeof(nn_loss);
    nn_loss *partials = nn_workspace_take(workspace, bytes + (size_t)room * sizeof(float)), sum = {0};
    int64_t counted = 0;
    if (!partials) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for partial sums");
    for (int64_t r = 0; r < rows; r++) counted += labels[r] >= 0;
    loss_job j = {dlogits, logits,  labels,  partials, room ? (float *)(partials + chunks) : NULL,
                  rows,    classes, counted, smoothing};
    mha_context_each(ctx, chunks, loss_chunk, &j);
    for (int64_t n = 0; n < chunks; n++) {
        sum.mean += partials[n].mean;
        sum.correct += partials[n].correct;
    }
    if (counted) sum.mean /= (double)counted;
    sum.counted = counted;
    *loss = sum;
    return MHA_OK;
}
