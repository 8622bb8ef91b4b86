/* Data sets from files: IDX, plain and gzipped, and the folder of four that makes MNIST. Good files give back what was
 * written, bad ones one clear line, which is compared whole.
 *
 * Files are built in memory, in blocks of their exact length, so that the address sanitizer sees the first byte read
 * outside. The allocator is wrapped (-Wl,--wrap in files.cmake): it counts, and it fails on request. */
#include "support/harness.h"
#include "data/idx.h"
#include "data/mnist.h"
#include "io/source.h"

#include <sys/stat.h>
#include <unistd.h>

#ifdef MHA_HAS_ZLIB
#include <zlib.h>
#endif

/* ---- The allocator, watched ------------------------------------------------------------------------------------- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

static struct {
    size_t asked;    /* bytes, all calls together */
    long fail_after; /* calls that succeed before all fail; -1: none fails */
} heap = {0, -1};

static bool allowed(size_t bytes)
{
    heap.asked += bytes;
    if (heap.fail_after == 0) return false;
    if (heap.fail_after > 0) heap.fail_after--;
    return true;
}

void *__wrap_malloc(size_t bytes) { return allowed(bytes) ? __real_malloc(bytes) : NULL; }
void *__wrap_calloc(size_t count, size_t bytes) { return allowed(count * bytes) ? __real_calloc(count, bytes) : NULL; }

/* ---- Building files --------------------------------------------------------------------------------------------- */

typedef struct blob {
    unsigned char *bytes;
    size_t size;
} blob;

static blob blob_of(size_t size) { return (blob){__real_malloc(size ? size : 1), size}; }

/* Magic, sizes and as many bytes as asked for, which count up from `first`, modulo `period`. */
static blob idx_of(uint32_t magic, const uint32_t *sizes, size_t data, int first, int period)
{
    int rank = (int)(magic & 0xff);
    blob file = blob_of(4 + 4 * (size_t)rank + data);
    for (int i = 0; i <= rank; i++)
        for (int k = 0; k < 4; k++) file.bytes[4 * i + k] = (unsigned char)((i ? sizes[i - 1] : magic) >> (24 - 8 * k));
    for (size_t i = 0; i < data; i++)
        file.bytes[4 + 4 * (size_t)rank + i] = (unsigned char)(((size_t)first + i) % (size_t)period);
    return file;
}

static blob images_of(uint32_t count, uint32_t rows, uint32_t columns)
{
    return idx_of(0x803, (uint32_t[]){count, rows, columns}, (size_t)count * rows * columns, 0, 251);
}

static blob labels_of(uint32_t count) { return idx_of(0x801, &count, count, 0, 10); }

/* The same bytes packed; the file is taken over. Without zlib, nothing. */
static blob gzip_of(blob plain)
{
    blob packed = {NULL, 0};
#ifdef MHA_HAS_ZLIB
    z_stream stream = {.next_in = plain.bytes, .avail_in = (uInt)plain.size};
    deflateInit2(&stream, 9, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY);
    blob room = blob_of((size_t)deflateBound(&stream, (uLong)plain.size));
    stream.next_out = room.bytes;
    stream.avail_out = (uInt)room.size;
    expect(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib did not pack");
    packed = blob_of((size_t)stream.total_out);
    memcpy(packed.bytes, room.bytes, packed.size);
    deflateEnd(&stream);
    free(room.bytes);
#endif
    free(plain.bytes);
    return packed;
}

static blob joined(blob a, blob b)
{
    blob both = blob_of(a.size + b.size);
    memcpy(both.bytes, a.bytes, a.size);
    memcpy(both.bytes + a.size, b.bytes, b.size);
    free(a.bytes);
    free(b.bytes);
    return both;
}

static bool no_gzip(void)
{
    if (!nn_source_reads_gzip()) not_given("this build has no zlib");
    return !nn_source_reads_gzip();
}

/* ---- IDX -------------------------------------------------------------------------------------------------------- */

/* The file is refused with exactly this line. Takes the file over. */
static void refuse(blob file, const char *line, int at)
{
    char error[300] = "", want[300];
    nn_idx read = {.rank = 7};
    snprintf(want, sizeof want, "t: %s", line);
    expect(nn_idx_parse(&read, file.bytes, file.size, "t", error, sizeof error), "line %d: it was read", at);
    expect(strcmp(error, want) == 0, "line %d: '%s', not '%s'", at, error, want);
    expect(!read.data && !read.rank && !read.count, "line %d: something was returned", at);
    nn_idx_free(&read);
    free(file.bytes);
}

#define REFUSE(file, line) refuse(file, line, __LINE__)

static void expect_images(blob file, int64_t count, int64_t rows, int64_t columns, int line)
{
    char error[300] = "";
    nn_idx read;
    bool ok = !nn_idx_parse(&read, file.bytes, file.size, "t", error, sizeof error);
    if (expect(ok, "line %d: %s", line, error)) {
        expect(read.rank == 3 && read.size[0] == count && read.size[1] == rows && read.size[2] == columns &&
                   read.count == count * rows * columns && read.data,
               "line %d: rank %d, %lld images", line, read.rank, (long long)read.size[0]);
        int64_t same = 0;
        while (same < read.count && read.data[same] == same % 251) same++;
        expect(same == read.count, "line %d: byte %lld is %d", line, (long long)same, read.data[same]);
    }
    nn_idx_free(&read);
    free(file.bytes);
}

TEST(images_and_labels_are_read)
{
    expect_images(images_of(3, 5, 7), 3, 5, 7, __LINE__);
    expect_images(images_of(300, 28, 28), 300, 28, 28, __LINE__);
    expect_images(images_of(0, 28, 28), 0, 28, 28, __LINE__);
    expect_images(images_of(2, 0, 9), 2, 0, 9, __LINE__);
    char error[300] = "";
    blob file = idx_of(0x801, (uint32_t[]){12}, 12, 250, 256);
    nn_idx read;
    if (expect(!nn_idx_parse(&read, file.bytes, file.size, "t", error, sizeof error), "%s", error))
        expect(read.rank == 1 && read.size[0] == 12 && read.size[1] == 1 && read.count == 12 && read.data[11] == 5,
               "rank %d, %lld labels", read.rank, (long long)read.count);
    nn_idx_free(&read);
    free(file.bytes);
}

TEST(wrong_bytes_are_refused)
{
    blob cut = images_of(3, 5, 7), html = blob_of(40);
    cut.size--;
    memset(html.bytes, 0, html.size);
    memcpy(html.bytes, "<!DOCTYPE html>", 15);
    REFUSE(blob_of(0), "the file ends within the IDX header");
    REFUSE(html, "not an IDX file of bytes: it begins with 0x3c21444f, not with 0x00000803 (images) or 0x00000801 "
                 "(labels)");
    REFUSE(idx_of(0xd03, (uint32_t[]){1, 2, 2}, 16, 0, 9),
           "not an IDX file of bytes: it begins with 0x00000d03, not with 0x00000803 (images) or 0x00000801 (labels)");
    REFUSE(cut, "3 images of 5 x 7 need 121 bytes, but the file has 120; the file is truncated");
    REFUSE(idx_of(0x801, (uint32_t[]){10}, 4, 0, 9),
           "10 labels need 18 bytes, but the file has 12; the file is truncated");
    REFUSE(idx_of(0x803, (uint32_t[]){3, 5, 7}, 106, 0, 9),
           "3 images of 5 x 7 need 121 bytes, but the file goes on behind them");
    REFUSE(idx_of(0x801, (uint32_t[]){0}, 1, 0, 9), "0 labels need 8 bytes, but the file goes on behind them");
}

TEST(every_truncation_is_refused)
{
    blob whole = images_of(2, 3, 4);
    for (size_t size = 0; size < whole.size; size++) {
        char line[100] = "the file ends within the IDX header";
        if (size >= 16)
            snprintf(line, sizeof line, "2 images of 3 x 4 need 40 bytes, but the file has %zu; the file is truncated",
                     size);
        blob part = blob_of(size);
        memcpy(part.bytes, whole.bytes, size);
        REFUSE(part, line);
    }
    free(whole.bytes);
}

/* Sizes whose product wraps around 64 bits to the very bytes that are there, and sizes that merely claim too much. */
TEST(sizes_beyond_the_file_cost_nothing)
{
    const uint32_t top = UINT32_MAX;
    heap.asked = 0;
    REFUSE(idx_of(0x803, (uint32_t[]){top, top, top}, 1, 0, 9),
           "4294967295 images of 4294967295 x 4294967295 are more than memory can hold");
    REFUSE(idx_of(0x803, (uint32_t[]){top, top, 1}, 1, 0, 9),
           "4294967295 images of 4294967295 x 1 are more than memory can hold");
    REFUSE(idx_of(0x803, (uint32_t[]){1u << 31, 1u << 31, 4}, 0, 0, 9),
           "2147483648 images of 2147483648 x 4 are more than memory can hold");
    REFUSE(idx_of(0x803, (uint32_t[]){1u << 31, 1u << 31, 1}, 0, 0, 9),
           "2147483648 images of 2147483648 x 1 need 4611686018427387920 bytes, but the file has 16; the file is "
           "truncated");
    REFUSE(idx_of(0x801, &top, 3, 0, 9),
           "4294967295 labels need 4294967303 bytes, but the file has 11; the file is truncated");
    expect(heap.asked < 4096, "%zu bytes were allocated", heap.asked);
}

static uint32_t draw(uint64_t *state) /* xorshift: good enough to shake bytes */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 16);
}

/* One clean line that begins with the name. */
static bool clean_line(const char *error)
{
    bool clean = strncmp(error, "t: ", 3) == 0 && strlen(error) > 8;
    for (const char *p = error; *p; p++) clean = clean && (unsigned char)*p >= 0x20 && *p != 0x7f;
    return clean;
}

/* Bytes changed, cut off or added at random: the file is refused with a line, or sound to its last byte. */
static void shake(blob whole, int rounds)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    volatile unsigned sink = 0;
    for (int round = 0; round < rounds; round++) {
        size_t size = whole.size;
        if (draw(&state) % 3 == 0) size = draw(&state) % (whole.size + 9);
        blob file = blob_of(size);
        for (size_t i = 0; i < size; i++) file.bytes[i] = i < whole.size ? whole.bytes[i] : (unsigned char)draw(&state);
        for (uint32_t n = draw(&state) % 4; n && size; n--) {
            size_t at = draw(&state) % (n % 2 && size > 20 ? 20 : size);
            file.bytes[at] = (unsigned char)(draw(&state) % 4 ? draw(&state) : draw(&state) % 5);
        }
        char error[300] = "";
        nn_idx read;
        if (!nn_idx_parse(&read, file.bytes, size, "t", error, sizeof error)) {
            for (int64_t i = 0; i < read.count; i++) sink = sink + read.data[i];
            expect(read.rank == 1 || read.rank == 3, "rank %d", read.rank);
        } else {
            expect(clean_line(error), "round %d: '%s'", round, error);
        }
        nn_idx_free(&read);
        free(file.bytes);
    }
    free(whole.bytes);
}

TEST(shaken_files_do_no_harm)
{
    shake(images_of(2, 3, 4), 20000);
    shake(labels_of(9), 20000);
}

TEST(no_memory_is_an_error)
{
    char error[300] = "";
    blob file = images_of(3, 5, 7);
    nn_idx read;
    heap.fail_after = 0;
    expect(nn_idx_parse(&read, file.bytes, file.size, "t", error, sizeof error), "it was read");
    heap.fail_after = -1;
    expect(strcmp(error, "t: not enough memory for 105 bytes") == 0, "%s", error);
    free(file.bytes);
}

TEST(an_error_buffer_of_any_size_will_do)
{
    char error[32];
    nn_idx read;
    for (size_t room = 0; room < sizeof error; room++) {
        memset(error, '#', sizeof error);
        expect(nn_idx_parse(&read, "IDX!", 4, "t", error, room), "a bad file was read");
        expect(error[room] == '#', "wrote outside %zu bytes", room);
        if (room) expect(memchr(error, 0, room), "no end within %zu bytes", room);
    }
    expect(nn_idx_parse(&read, NULL, 0, "t", NULL, 0), "nothing was read as a file");
}

/* ---- Gzip ------------------------------------------------------------------------------------------------------- */

TEST(gzipped_files_are_read)
{
    if (no_gzip()) return;
    expect_images(gzip_of(images_of(3, 5, 7)), 3, 5, 7, __LINE__);
    expect_images(gzip_of(images_of(0, 5, 7)), 0, 5, 7, __LINE__);
    expect_images(gzip_of(images_of(1000, 28, 28)), 1000, 28, 28, __LINE__);
}

/* A gzip file may have several members, one after the other; an empty one is legal, too. */
TEST(members_are_one_file)
{
    if (no_gzip()) return;
    blob whole = images_of(40, 5, 7), head = blob_of(13), tail = blob_of(whole.size - 13);
    memcpy(head.bytes, whole.bytes, head.size);
    memcpy(tail.bytes, whole.bytes + 13, tail.size);
    free(whole.bytes);
    expect_images(joined(joined(gzip_of(head), gzip_of(blob_of(0))), gzip_of(tail)), 40, 5, 7, __LINE__);
}

TEST(damaged_gzip_is_refused)
{
    if (no_gzip()) return;
    blob checksum = gzip_of(images_of(3, 5, 7)), garbage = blob_of(6), method = gzip_of(labels_of(3));
    checksum.bytes[checksum.size - 6] ^= 1;
    REFUSE(checksum, "the gzip file is damaged: incorrect data check");
    memset(garbage.bytes, 'x', 6);
    REFUSE(joined(gzip_of(images_of(3, 5, 7)), garbage), "the gzip file is damaged: incorrect header check");
    method.bytes[2] = 9;
    REFUSE(method, "the gzip file is damaged: unknown compression method");
    REFUSE(joined(gzip_of(images_of(3, 5, 7)), gzip_of(labels_of(3))),
           "3 images of 5 x 7 need 121 bytes, but the file goes on behind them");
    REFUSE(gzip_of(idx_of(0x803, (uint32_t[]){3, 5, 7}, 104, 0, 9)),
           "3 images of 5 x 7 need 121 bytes, but the file has 120 unpacked; the file is truncated");
    REFUSE(gzip_of(blob_of(0)), "the file ends within the IDX header");
    blob whole = gzip_of(images_of(3, 5, 7));
    for (size_t size = 2; size < whole.size; size++) {
        blob part = blob_of(size);
        memcpy(part.bytes, whole.bytes, size);
        REFUSE(part, "the gzip file is truncated");
    }
    free(whole.bytes);
}

/* A few bytes that unpack to sizes which claim the world. */
TEST(gzipped_claims_cost_nothing)
{
    if (no_gzip()) return;
    blob file = gzip_of(idx_of(0x803, (uint32_t[]){100000000, 28, 28}, 0, 0, 9));
    char line[120];
    snprintf(line, sizeof line, "a gzipped file of %zu bytes cannot hold the 78400000016 that it claims", file.size);
    heap.asked = 0;
    REFUSE(file, line);
    expect(heap.asked < 100000, "%zu bytes were allocated", heap.asked);
}

TEST(shaken_gzip_does_no_harm)
{
    if (no_gzip()) return;
    shake(gzip_of(images_of(2, 3, 4)), 5000);
    shake(joined(gzip_of(labels_of(9)), gzip_of(blob_of(0))), 5000);
}

/* Without zlib, too, a gzipped file is known for what it is. */
TEST(the_start_of_a_gzipped_file_is_known)
{
    static const unsigned char start[12] = {0x1f, 0x8b, 8};
    blob file = blob_of(sizeof start);
    memcpy(file.bytes, start, sizeof start);
    REFUSE(file, nn_source_reads_gzip() ? "the gzip file is truncated"
                                        : "the file is compressed, but this build has no zlib; decompress it first");
}

/* ---- The folder ------------------------------------------------------------------------------------------------- */

static char folder[40];

static const char *path_of(const char *name)
{
    static char path[120];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Takes the file over. */
static void write_file(const char *name, blob file)
{
    FILE *out = fopen(path_of(name), "wb");
    if (expect(out, "cannot write %s", name)) {
        expect(fwrite(file.bytes, 1, file.size, out) == file.size && !fclose(out), "cannot write %s", name);
    }
    free(file.bytes);
}

static bool begin_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/mha-test-XXXXXX");
    if (!expect(mkdtemp(folder), "no temporary folder")) return false;
    write_file("train-images-idx3-ubyte", images_of(20, 4, 6));
    write_file("train-labels-idx1-ubyte", labels_of(20));
    write_file("t10k-images-idx3-ubyte", images_of(7, 4, 6));
    write_file("t10k-labels-idx1-ubyte", labels_of(7));
    return true;
}

static void end_folder(void)
{
    static const char *const stems[] = {"train-images", "train-labels", "t10k-images", "t10k-labels"};
    char name[60];
    for (int i = 0; i < 16; i++) {
        snprintf(name, sizeof name, "%s%cidx%d-ubyte%s", stems[i % 4], i & 4 ? '.' : '-', i % 2 ? 1 : 3,
                 i & 8 ? ".gz" : "");
        unlink(path_of(name));
    }
    expect(rmdir(folder) == 0, "%s is not empty", folder);
}

static void rename_file(const char *from, const char *to)
{
    char old[120];
    snprintf(old, sizeof old, "%s", path_of(from));
    expect(rename(old, path_of(to)) == 0, "cannot rename %s", from);
}

/* The folder is a sound set as begin_folder writes it. */
static void expect_set(int line)
{
    char error[300] = "";
    nn_mnist *set;
    nn_mnist_open(&set, folder, error, sizeof error);
    if (!expect(set, "line %d: %s", line, error)) return;
    expect(set->rows == 4 && set->columns == 6 && set->train.count == 20 && set->test.count == 7 && !set->synthetic,
           "line %d: %lld + %lld images", line, (long long)set->train.count, (long long)set->test.count);
    expect(strcmp(set->name, folder) == 0, "line %d: its name is %s", line, set->name);
    for (int i = 0; i < 20; i++) expect(set->train.labels[i] == i % 10, "line %d: label %d", line, i);
    for (int i = 0; i < 20 * 24; i++) expect(set->train.images[i] == i % 251, "line %d: byte %d", line, i);
    for (int i = 0; i < 24; i++)
        expect(nn_mnist_image(set, &set->test, 6)[i] == 6 * 24 + i, "line %d: byte %d of the last image", line, i);
    nn_mnist_free(set);
}

/* It is refused with exactly this line behind the folder's path. */
static void refuse_set(const char *line, int at)
{
    char error[400] = "", want[400];
    snprintf(want, sizeof want, "%s%s", folder, line);
    nn_mnist *set;
    nn_mnist_open(&set, folder, error, sizeof error);
    expect(!set, "line %d: it was read", at);
    expect(strcmp(error, want) == 0, "line %d: '%s', not '%s'", at, error, want);
    nn_mnist_free(set);
}

#define REFUSE_SET(line) refuse_set(line, __LINE__)

TEST(a_folder_is_a_set)
{
    if (!begin_folder()) return;
    expect_set(__LINE__);
    rename_file("train-images-idx3-ubyte", "train-images.idx3-ubyte");
    rename_file("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte");
    expect_set(__LINE__);
    write_file("train-images.idx3-ubyte.gz", blob_of(0)); /* the plain one counts */
    expect_set(__LINE__);
    end_folder();
}

TEST(a_folder_of_gzipped_files_is_a_set)
{
    if (no_gzip() || !begin_folder()) return;
    end_folder();
    mkdir(folder, 0700);
    write_file("train-images-idx3-ubyte.gz", gzip_of(images_of(20, 4, 6)));
    write_file("train-labels-idx1-ubyte.gz", gzip_of(labels_of(20)));
    write_file("t10k-images.idx3-ubyte.gz", gzip_of(images_of(7, 4, 6)));
    write_file("t10k-labels-idx1-ubyte", gzip_of(labels_of(7))); /* the bytes tell, not the name */
    expect_set(__LINE__);
    end_folder();
}

TEST(missing_files_are_named)
{
    if (!begin_folder()) return;
    unlink(path_of("train-labels-idx1-ubyte"));
    REFUSE_SET(": train-labels-idx1-ubyte is missing; tried plain, with .gz and with '.' before idx");
    unlink(path_of("t10k-images-idx3-ubyte"));
    REFUSE_SET(
        ": train-labels-idx1-ubyte, t10k-images-idx3-ubyte are missing; tried plain, with .gz and with '.' before idx");
    end_folder();
    REFUSE_SET(": No such file or directory");
    mkdir(folder, 0700);
    REFUSE_SET(": train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte are "
               "missing; tried plain, with .gz and with '.' before idx");
    mkdir(path_of("train-images-idx3-ubyte"), 0700);
    write_file("train-labels-idx1-ubyte", labels_of(20));
    write_file("t10k-images-idx3-ubyte", images_of(7, 4, 6));
    write_file("t10k-labels-idx1-ubyte", labels_of(7));
    REFUSE_SET("/train-images-idx3-ubyte: not a regular file");
    rmdir(path_of("train-images-idx3-ubyte"));
    end_folder();
    FILE *file = fopen(folder, "wb");
    if (expect(file, "cannot write %s", folder)) fclose(file);
    REFUSE_SET(": Not a directory");
    unlink(folder);
}

TEST(sets_that_do_not_fit_are_refused)
{
    if (!begin_folder()) return;
    write_file("train-images-idx3-ubyte", labels_of(20));
    REFUSE_SET("/train-images-idx3-ubyte: contains labels, not images");
    write_file("train-labels-idx1-ubyte", images_of(20, 4, 6));
    REFUSE_SET("/train-images-idx3-ubyte: contains labels and the label file contains images: the two are swapped");
    write_file("train-images-idx3-ubyte", images_of(20, 4, 6));
    REFUSE_SET("/train-labels-idx1-ubyte: contains images, not labels");
    write_file("train-labels-idx1-ubyte", labels_of(19));
    REFUSE_SET("/train-labels-idx1-ubyte: 19 labels, but there are 20 images");
    write_file("train-labels-idx1-ubyte", idx_of(0x801, (uint32_t[]){20}, 20, 0, 19));
    REFUSE_SET("/train-labels-idx1-ubyte: label 10 is 10, but labels go from 0 to 9");
    write_file("train-labels-idx1-ubyte", labels_of(20));
    write_file("t10k-images-idx3-ubyte", images_of(7, 6, 4));
    REFUSE_SET("/t10k-images-idx3-ubyte: images of 6 x 4, but those of training are 4 x 6");
    write_file("t10k-images-idx3-ubyte", images_of(7, 4, 7));
    REFUSE_SET("/t10k-images-idx3-ubyte: images of 4 x 7, but those of training are 4 x 6");
    write_file("t10k-images-idx3-ubyte", images_of(0, 4, 6));
    REFUSE_SET("/t10k-images-idx3-ubyte: 0 images of 4 x 6 are nothing to learn from");
    write_file("t10k-images-idx3-ubyte", images_of(7, 4, 0));
    REFUSE_SET("/t10k-images-idx3-ubyte: 7 images of 4 x 0 are nothing to learn from");
    write_file("t10k-images-idx3-ubyte", idx_of(0x803, (uint32_t[]){7, 4, 6}, 100, 0, 9));
    REFUSE_SET(
        "/t10k-images-idx3-ubyte: 7 images of 4 x 6 need 184 bytes, but the file has 116; the file is truncated");
    end_folder();
}

TEST(a_set_takes_the_memory_of_its_bytes)
{
    if (!begin_folder()) return;
    write_file("train-images-idx3-ubyte", images_of(4000, 28, 28));
    write_file("train-labels-idx1-ubyte", labels_of(4000));
    write_file("t10k-images-idx3-ubyte", images_of(7, 28, 28));
    char error[300] = "";
    heap.asked = 0;
    nn_mnist *set;
    nn_mnist_open(&set, folder, error, sizeof error);
    expect(set, "%s", error);
    expect(heap.asked < 4007 * 785 + 20000, "%zu bytes were allocated for %d", heap.asked, 4007 * 785);
    nn_mnist_free(set);
    end_folder();
}

TEST(no_memory_is_an_error_wherever_it_strikes)
{
    if (!begin_folder()) return;
    long step = 0;
    for (nn_mnist *set = NULL; !set && step < 100; step++) {
        char error[300] = "";
        heap.fail_after = step;
        mha_status status = nn_mnist_open(&set, folder, error, sizeof error);
        heap.fail_after = -1;
        expect(!set == (status != MHA_OK), "allocation %ld: %s", step, mha_status_name(status));
        if (!set)
            expect(status == MHA_NO_MEMORY && strstr(error, " memory"), "allocation %ld: %s, '%s'", step,
                   mha_status_name(status), error);
        nn_mnist_free(set);
        if (set) break;
    }
    expect(step >= 9 && step < 100, "it took %ld allocations", step);
    end_folder();
}

TEST(statistics_are_those_of_the_bytes)
{
    unsigned char bytes[4] = {0, 255, 255, 0}, labels[2] = {0};
    nn_mnist set = {.rows = 1, .columns = 2, .train = {2, bytes, labels}};
    char text[80];
    float mean, deviation;
    nn_mnist_statistics(&set, &set.train, &mean, &deviation);
    expect(mean == 0.5f && deviation == 0.5f, "%g, %g", (double)mean, (double)deviation);
    memset(bytes, 51, sizeof bytes);
    nn_mnist_statistics(&set, &set.train, &mean, &deviation);
    expect(mean == 0.2f && deviation == 1 / 255.0f, "%g, %g", (double)mean, (double)deviation);
    set.name = folder;
    snprintf(folder, sizeof folder, "here");
    expect(strcmp(nn_mnist_describe(text, sizeof text, &set), "2 + 0 images of 1 x 2 from here") == 0, "%s", text);
}

/* The real thing, where MHA_MNIST names its folder (`./dev data mnist` prints one). */
TEST(real_mnist_is_read)
{
    const char *where = getenv("MHA_MNIST");
    char error[300] = "";
    float mean, deviation;
    if (!where) {
        not_given("MHA_MNIST names no folder");
        return;
    }
    nn_mnist *set;
    nn_mnist_open(&set, where, error, sizeof error);
    if (!expect(set, "%s", error)) return;
    nn_mnist_statistics(set, &set->train, &mean, &deviation);
    expect(set->train.count == 60000 && set->test.count == 10000 && set->rows == 28 && set->columns == 28, "its sizes");
    expect(fabsf(mean - 0.1307f) < 1e-4f && fabsf(deviation - 0.3081f) < 1e-4f, "%g, %g", (double)mean,
           (double)deviation);
    expect(set->train.labels[0] == 5 && set->test.labels[0] == 7, "its first labels");
    nn_mnist_free(set);
}
