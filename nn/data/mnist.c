/* A data set from four IDX files. All four are located before the first is read, so that one message names all missing
 * files; the images and labels of a part are checked against each other once both are read. */
#include "data/mnist.h"
#include "io/failure.h"
#include "data/idx.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES = 4, SPELLINGS = 4 };

static const char *const stems[FILES] = {"train-images", "train-labels", "t10k-images", "t10k-labels"};

/* The state of reading, and the error buffer. */
typedef struct reading {
    const char *folder;
    char *path[FILES];
    char *error;
    size_t error_size;
} reading;

__attribute__((format(printf, 3, 4))) static mha_status refuse(const reading *r, const char *path, const char *format,
                                                               ...)
{
    char line[300];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return nn_error_because(&(nn_failure){path, r->error, r->error_size}, MHA_BAD_FILE, line);
}

static mha_status no_memory(const reading *r)
{
    return nn_error(&(nn_failure){r->folder, r->error, r->error_size}, MHA_NO_MEMORY, "out of memory");
}

/* ---- Finding the files ------------------------------------------------------------------------------------------ */

static const char *kind(int file) { return file % 2 ? "idx1" : "idx3"; }

/* Sets r->path[file] to the first existing spelling of the file's name. */
static mha_status find(reading *r, int file)
{
    static const struct {
        char joint;
        const char *end;
    } spellings[SPELLINGS] = {{'-', ""}, {'.', ""}, {'-', ".gz"}, {'.', ".gz"}};
    struct stat about;
    size_t room = strlen(r->folder) + 40;
    char *path = malloc(room);
    if (!path) return no_memory(r);
    for (int i = 0; i < SPELLINGS; i++) {
        snprintf(path, room, "%s/%s%c%s-ubyte%s", r->folder, stems[file], spellings[i].joint, kind(file),
                 spellings[i].end);
        if (stat(path, &about) == 0 || errno != ENOENT) { /* other errors are reported when the file is opened */
            r->path[file] = path;
            return MHA_OK;
        }
    }
    free(path);
    return MHA_OK;
}

static mha_status find_all(reading *r)
{
    struct stat about;
    char missing[200] = "";
    size_t n = 0;
    int count = 0;
    if (stat(r->folder, &about) != 0) return refuse(r, r->folder, "%s", strerror(errno));
    if (!S_ISDIR(about.st_mode)) return refuse(r, r->folder, "%s", strerror(ENOTDIR));
    for (int i = 0; i < FILES; i++) {
        TRY(find(r, i));
        if (r->path[i]) continue;
        n += (size_t)snprintf(missing + n, sizeof missing - n, "%s%s-%s-ubyte", count++ ? ", " : "", stems[i], kind(i));
    }
    if (!count) return MHA_OK;
    return refuse(r, r->folder, "%s %s missing; tried plain, with .gz and with '.' before idx", missing,
                  count > 1 ? "are" : "is");
}

/* ---- Reading the files ------------------------------------------------------------------------------------------ */

static mha_status check_part(reading *r, int file, const nn_idx *images, const nn_idx *labels)
{
    const char *path = r->path[file], *beside = r->path[file + 1];
    if (images->rank == 1 && labels->rank == 3)
        return refuse(r, path, "contains labels and the label file contains images: the two are swapped");
    if (images->rank != 3) return refuse(r, path, "contains labels, not images");
    if (labels->rank != 1) return refuse(r, beside, "contains images, not labels");
    if (!images->count)
        return refuse(r, path, "%" PRId64 " images of %" PRId64 " x %" PRId64 " are nothing to learn from",
                      images->size[0], images->size[1], images->size[2]);
    if (images->size[0] != labels->count)
        return refuse(r, beside, "%" PRId64 " labels, but there are %" PRId64 " images", labels->count,
                      images->size[0]);
    for (int64_t i = 0; i < labels->count; i++)
        if (labels->data[i] >= NN_MNIST_CLASSES)
            return refuse(r, beside, "label %" PRId64 " is %d, but labels go from 0 to %d", i, labels->data[i],
                          NN_MNIST_CLASSES - 1);
    return MHA_OK;
}

/* Two files: `file` with images and the next one with labels. */
static mha_status read_part(reading *r, int file, nn_mnist *set, nn_mnist_part *part)
{
    nn_idx images, labels = {0};
    mha_status status = nn_idx_open(&images, r->path[file], r->error, r->error_size);
    if (!status) status = nn_idx_open(&labels, r->path[file + 1], r->error, r->error_size);
    if (!status) status = check_part(r, file, &images, &labels);
    if (!status && set->rows && (images.size[1] != set->rows || images.size[2] != set->columns))
        status = refuse(r, r->path[file],
                        "images of %" PRId64 " x %" PRId64 ", but those of training are %" PRId64 " x %" PRId64,
                        images.size[1], images.size[2], set->rows, set->columns);
    if (status) {
        nn_idx_free(&images);
        nn_idx_free(&labels);
        return status;
    }
    set->rows = images.size[1];
    set->columns = images.size[2];
    *part = (nn_mnist_part){.count = labels.count, .images = images.data, .labels = labels.data};
    return MHA_OK;
}

static mha_status read_set(reading *r, nn_mnist *set)
{
    if (!(set->name = strdup(r->folder))) return no_memory(r);
    TRY(find_all(r));
    TRY(read_part(r, 0, set, &set->train));
    return read_part(r, 2, set, &set->test);
}

mha_status nn_mnist_open(nn_mnist **out, const char *folder, char *error, size_t error_size)
{
    reading r = {.folder = folder, .error = error, .error_size = error_size};
    nn_mnist *set = calloc(1, sizeof *set);
    *out = NULL;
    mha_status status = set ? read_set(&r, set) : no_memory(&r);
    for (int i = 0; i < FILES; i++) free(r.path[i]);
    if (status) nn_mnist_free(set);
    else *out = set;
    return status;
}

void nn_mnist_free(nn_mnist *set)
{
    if (!set) return;
    free(set->train.images);
    free(set->train.labels);
    free(set->test.images);
    free(set->test.labels);
    free(set->name);
    free(set);
}

/* ---- Statistics ------------------------------------------------------------------------------------------------- */

/* n * sum of squares can exceed 2^63, so the variance is computed from means: they are quotients of integers below
 * 2^53, each rounded once. */
void nn_mnist_statistics(const nn_mnist *set, const nn_mnist_part *part, float *mean, float *deviation)
{
    int64_t n = part->count * set->rows * set->columns;
    uint64_t sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += part->images[i];
        squares += (uint64_t)part->images[i] * part->images[i];
    }
    double m = (double)sum / (double)n, variance = (double)squares / (double)n - m * m;
    *mean = (float)(m / 255);
    *deviation = (float)(sqrt(variance > 1 ? variance : 1) / 255);
}

const char *nn_mnist_describe(char *out, size_t room, const nn_mnist *set)
{
    snprintf(out, room, "%" PRId64 " + %" PRId64 " images of %" PRId64 " x %" PRId64 " %s%s%s", set->train.count,
             set->test.count, set->rows, set->columns, set->synthetic ? "drawn by " : "from ", set->name,
             set->synthetic ? " (synthetic: not MNIST)" : "");
    return out;
}
