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

__attribute__((format(printf, 3, 4))) static bool fail(reading *r, const char *path, const char *format, ...)
{
    char line[300];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return nn_fail_because(&(nn_failure){path, r->error, r->error_size}, line);
}

/* ---- Finding the files ------------------------------------------------------------------------------------------ */

static const char *kind(int file) { return file % 2 ? "idx1" : "idx3"; }

/* Sets r->path[file] to the first existing spelling of the file's name. Returns false if out of memory. */
static bool find(reading *r, int file)
{
    static const struct {
        char joint;
        const char *end;
    } spellings[SPELLINGS] = {{'-', ""}, {'.', ""}, {'-', ".gz"}, {'.', ".gz"}};
    struct stat about;
    size_t room = strlen(r->folder) + 40;
    char *path = malloc(room);
    if (!path) return fail(r, r->folder, "out of memory");
    for (int i = 0; i < SPELLINGS; i++) {
        snprintf(path, room, "%s/%s%c%s-ubyte%s", r->folder, stems[file], spellings[i].joint, kind(file),
                 spellings[i].end);
        if (stat(path, &about) == 0 || errno != ENOENT) { /* other errors are reported when the file is opened */
            r->path[file] = path;
            return true;
        }
    }
    free(path);
    return true;
}

static bool find_all(reading *r)
{
    struct stat about;
    char missing[200] = "";
    size_t n = 0;
    int count = 0;
    if (stat(r->folder, &about) != 0) return fail(r, r->folder, "%s", strerror(errno));
    if (!S_ISDIR(about.st_mode)) return fail(r, r->folder, "%s", strerror(ENOTDIR));
    for (int i = 0; i < FILES; i++) {
        if (!find(r, i)) return false;
        if (r->path[i]) continue;
        n += (size_t)snprintf(missing + n, sizeof missing - n, "%s%s-%s-ubyte", count++ ? ", " : "", stems[i], kind(i));
    }
    return !count || fail(r, r->folder, "%s %s missing; tried plain, with .gz and with '.' before idx", missing,
                          count > 1 ? "are" : "is");
}

/* ---- Reading the files ------------------------------------------------------------------------------------------ */

static bool check_part(reading *r, int file, const nn_idx *images, const nn_idx *labels)
{
    const char *path = r->path[file], *beside = r->path[file + 1];
    if (images->rank == 1 && labels->rank == 3)
        return fail(r, path, "contains labels and the label file contains images: the two are swapped");
    if (images->rank != 3) return fail(r, path, "contains labels, not images");
    if (labels->rank != 1) return fail(r, beside, "contains images, not labels");
    if (!images->count)
        return fail(r, path, "%" PRId64 " images of %" PRId64 " x %" PRId64 " are nothing to learn from",
                    images->size[0], images->size[1], images->size[2]);
    if (images->size[0] != labels->count)
        return fail(r, beside, "%" PRId64 " labels, but there are %" PRId64 " images", labels->count, images->size[0]);
    for (int64_t i = 0; i < labels->count; i++)
        if (labels->data[i] >= NN_MNIST_CLASSES)
            return fail(r, beside, "label %" PRId64 " is %d, but labels go from 0 to %d", i, labels->data[i],
                        NN_MNIST_CLASSES - 1);
    return true;
}

/* Two files: `file` with images and the next one with labels. */
static bool read_part(reading *r, int file, nn_mnist *set, nn_mnist_part *part)
{
    nn_idx images, labels = {0};
    bool ok = nn_idx_open(&images, r->path[file], r->error, r->error_size) &&
              nn_idx_open(&labels, r->path[file + 1], r->error, r->error_size) && check_part(r, file, &images, &labels);
    if (ok && set->rows && (images.size[1] != set->rows || images.size[2] != set->columns))
        ok = fail(r, r->path[file],
                  "images of %" PRId64 " x %" PRId64 ", but those of training are %" PRId64 " x %" PRId64,
                  images.size[1], images.size[2], set->rows, set->columns);
    if (!ok) {
        nn_idx_free(&images);
        nn_idx_free(&labels);
        return false;
    }
    set->rows = images.size[1];
    set->columns = images.size[2];
    *part = (nn_mnist_part){.count = labels.count, .images = images.data, .labels = labels.data};
    return true;
}

nn_mnist *nn_mnist_open(const char *folder, char *error, size_t error_size)
{
    reading r = {.folder = folder, .error = error, .error_size = error_size};
    nn_mnist *set = calloc(1, sizeof *set);
    if (!set || !(set->name = strdup(folder))) {
        fail(&r, folder, "out of memory");
        free(set);
        return NULL;
    }
    bool ok = find_all(&r) && read_part(&r, 0, set, &set->train) && read_part(&r, 2, set, &set->test);
    for (int i = 0; i < FILES; i++) free(r.path[i]);
    if (ok) return set;
    nn_mnist_free(set);
    return NULL;
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
