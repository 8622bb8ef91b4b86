/* IDX files: the sizes are checked against the length of the file before memory for the data is allocated. The length
 * of a gzipped file is known only after decompression, so it is first checked against deflate's maximum ratio. */
#include "data/idx.h"
#include "io/failure.h"
#include "io/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LABELS = 0x801, IMAGES = 0x803 };

static mha_status read_number(nn_source *from, uint32_t *number)
{
    unsigned char bytes[4];
    size_t got = nn_source_take(from, bytes, 4);
    TRY(from->failed);
    if (got < 4) return nn_source_fail(from, MHA_BAD_FILE, "the file ends within the IDX header");
    *number = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    return MHA_OK;
}

static mha_status read_sizes(nn_source *from, nn_idx *file)
{
    uint32_t magic = 0, size = 0;
    bool fits = true;
    TRY(read_number(from, &magic));
    if (magic != LABELS && magic != IMAGES)
        return nn_source_fail(from, MHA_BAD_FILE,
                              "not an IDX file of bytes: it begins with 0x%08" PRIx32 ", not with 0x%08x (images) or "
                              "0x%08x (labels)",
                              magic, (unsigned)IMAGES, (unsigned)LABELS);
    *file = (nn_idx){.rank = magic == IMAGES ? 3 : 1, .size = {1, 1, 1}, .count = 1};
    for (int i = 0; i < file->rank; i++) {
        TRY(read_number(from, &size));
        file->size[i] = size;
        fits = fits && !__builtin_mul_overflow(file->count, file->size[i], &file->count);
    }
    if (fits) return MHA_OK;
    return nn_source_fail(from, MHA_BAD_FILE,
                          "%" PRId64 " images of %" PRId64 " x %" PRId64 " are more than memory can hold",
                          file->size[0], file->size[1], file->size[2]);
}

/* Reports that a file of `have` bytes, including the header, does not match its sizes. */
static mha_status refuse_length(nn_source *from, const nn_idx *file, uint64_t have)
{
    char what[100];
    uint64_t need = (uint64_t)file->count + 4 + 4 * (uint64_t)file->rank;
    int n = snprintf(what, sizeof what, "%" PRId64 " %s", file->size[0], file->rank == 3 ? "images" : "labels");
    if (file->rank == 3)
        snprintf(what + n, sizeof what - (size_t)n, " of %" PRId64 " x %" PRId64, file->size[1], file->size[2]);
    if (have < need)
        return nn_source_fail(from, MHA_BAD_FILE,
                              "%s need %" PRIu64 " bytes, but the file has %" PRIu64 "%s; the file is truncated", what,
                              need, have, from->unpacker ? " unpacked" : "");
    return nn_source_fail(from, MHA_BAD_FILE, "%s need %" PRIu64 " bytes, but the file goes on behind them", what,
                          need);
}

static mha_status read_data(nn_source *from, nn_idx *file)
{
    unsigned char more;
    uint64_t header = 4 + 4 * (uint64_t)file->rank, need = (uint64_t)file->count + header;
    if (!from->unpacker && from->size != need) return refuse_length(from, file, from->size);
    if (need > nn_source_most(from))
        return nn_source_fail(from, MHA_BAD_FILE,
                              "a gzipped file of %" PRIu64 " bytes cannot hold the %" PRIu64 " that it claims",
                              from->size, need);
    file->data = (uint64_t)file->count < SIZE_MAX ? malloc((size_t)file->count + 1) : NULL; /* + 1: never NULL */
    if (!file->data) return nn_source_fail(from, MHA_NO_MEMORY, "not enough memory for %" PRId64 " bytes", file->count);
    size_t got = nn_source_take(from, file->data, (size_t)file->count);
    if (!from->failed && got < (size_t)file->count) return refuse_length(from, file, got + header);
    if (!from->failed && nn_source_take(from, &more, 1) > 0) return refuse_length(from, file, need + 1);
    return from->failed; /* reading past the end also made zlib verify its checksum */
}

static mha_status read_all(nn_source *from, nn_idx *file)
{
    *file = (nn_idx){0};
    mha_status status = from->failed;
    if (!status) status = read_sizes(from, file);
    if (!status) status = read_data(from, file);
    nn_source_close(from);
    if (status) nn_idx_free(file);
    return status;
}

mha_status nn_idx_open(nn_idx *file, const char *path, char *error, size_t error_size)
{
    nn_source from;
    nn_source_open(&from, path, error, error_size);
    return read_all(&from, file);
}

mha_status nn_idx_parse(nn_idx *file, const void *bytes, size_t size, const char *name, char *error, size_t error_size)
{
    nn_source from;
    nn_source_memory(&from, bytes, size, name, error, error_size);
    return read_all(&from, file);
}

void nn_idx_free(nn_idx *file)
{
    free(file->data);
    *file = (nn_idx){0};
}
