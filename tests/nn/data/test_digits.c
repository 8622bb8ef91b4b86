/* The digits that a program draws, and what augmentation makes of images. */
#include "data/affine.h"
#include "data/augment.h"
#include "data/digits.h"
#include "support/harness.h"
#include "ops/philox.h"

enum { SIDE = NN_DIGITS_SIDE, PIXELS = SIDE * SIDE };

static uint64_t hash_of(const void *bytes, size_t size)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return hash;
}

/* ---- Numbers by their place ------------------------------------------------------------------------------------- */

/* The vectors of Random123's kat_vectors for philox4x32-10: all zeros, all ones, digits of pi. */
TEST(philox_gives_the_published_numbers)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nn_philox draw = {.key = (uint64_t)cases[i].key[1] << 32 | cases[i].key[0], .used = 4};
        memcpy(draw.counter, cases[i].counter, sizeof draw.counter);
        for (int k = 0; k < 4; k++) {
            uint32_t got = nn_philox_next(&draw);
            expect(got == cases[i].want[k], "case %zu, number %d: %08x", i, k, (unsigned)got);
        }
    }
}

TEST(uniform_numbers_keep_their_bounds)
{
    nn_philox draw = nn_philox_at(3, NN_PHILOX_DIGITS, 0, 0);
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        float x = nn_philox_uniform(&draw, -2, 3);
        expect(x >= -2 && x < 3, "%g", (double)x);
        sum += x;
    }
    expect(fabs(sum / 100000 - 0.5) < 0.02, "the mean is %g", sum / 100000); /* 4 deviations of the mean: 0.018 */
    expect(nn_philox_uniform(&draw, 0, 0) == 0, "between 0 and 0 there is another number");
}

/* Within two units in the last place of 1, which is far below a pixel. */
TEST(turns_are_sines_and_cosines)
{
    for (float degrees = -45; degrees <= 45; degrees += 0.125f) {
        nn_affine turn = nn_affine_turn(degrees);
        double x = degrees * (3.14159265358979323846 / 180);
        expect(fabs(turn.a - cos(x)) < 2.4e-7 && fabs(turn.c - sin(x)) < 2.4e-7 && turn.d == turn.a &&
                   turn.b == -turn.c,
               "%g degrees: %g, %g", (double)degrees, (double)turn.a, (double)turn.c);
    }
    nn_affine none = nn_affine_turn(0);
    expect(none.a == 1 && none.b == 0 && none.c == 0 && none.d == 1, "a turn by nothing does something");
}

/* ---- Digits ----------------------------------------------------------------------------------------------------- */

static nn_mnist *make(int64_t train, int64_t test, uint64_t seed)
{
    char error[200] = "";
    nn_mnist *set = nn_digits_make(train, test, seed, error, sizeof error);
    expect(set, "%s", error);
    return set;
}

/* Pinned: whoever changes a stroke changes what every seed trains on. The same on every machine. */
TEST(digits_are_pinned)
{
    nn_mnist *set = make(200, 50, 1);
    if (!set) return;
    uint64_t train = hash_of(set->train.images, 200 * PIXELS), test = hash_of(set->test.images, 50 * PIXELS);
    expect(train == 0x07ca91ca67e8feb4u, "train: 0x%016llx", (unsigned long long)train);
    expect(test == 0x4c611cba24eab805u, "test: 0x%016llx", (unsigned long long)test);
    nn_mnist_free(set);
}

TEST(a_set_says_that_it_is_synthetic)
{
    char text[120];
    nn_mnist *set = make(30, 20, 1);
    if (!set) return;
    expect(set->synthetic && set->rows == SIDE && set->columns == SIDE && set->train.count == 30 &&
               set->test.count == 20,
           "its sizes");
    expect(strcmp(nn_mnist_describe(text, sizeof text, set),
                  "30 + 20 images of 28 x 28 drawn by mha's stroke generator (synthetic: not MNIST)") == 0,
           "%s", text);
    for (int i = 0; i < 30; i++) expect(set->train.labels[i] == i % 10, "label %d is %d", i, set->train.labels[i]);
    nn_mnist_free(set);
}

TEST(an_image_depends_on_its_place_alone)
{
    unsigned char again[PIXELS], other[PIXELS];
    nn_mnist *set = make(60, 30, 7), *longer = make(90, 40, 7);
    if (set && longer) {
        expect(memcmp(set->train.images, longer->train.images, 60 * PIXELS) == 0, "a longer set begins otherwise");
        expect(memcmp(set->test.images, longer->test.images, 30 * PIXELS) == 0, "a longer set begins otherwise");
        for (int i = 29; i >= 0; i--) {
            nn_digits_draw(again, i % 10, 7, NN_DIGITS_TEST, (uint64_t)i);
            expect(memcmp(again, nn_mnist_image(set, &set->test, i), PIXELS) == 0, "image %d differs when drawn alone",
                   i);
            expect(memcmp(again, nn_mnist_image(set, &set->train, i), PIXELS) != 0, "image %d is in both parts", i);
            nn_digits_draw(other, i % 10, 8, NN_DIGITS_TEST, (uint64_t)i);
            expect(memcmp(again, other, PIXELS) != 0, "image %d does not depend on the seed", i);
        }
    }
    nn_mnist_free(set);
    nn_mnist_free(longer);
}

/* Ink in plenty but not everywhere, none of it at the very edge of most images, some of it black. */
TEST(digits_have_ink_in_the_middle)
{
    nn_mnist *set = make(2000, 10, 5);
    int edges = 0;
    if (!set) return;
    for (int i = 0; i < 2000; i++) {
        const unsigned char *image = nn_mnist_image(set, &set->train, i);
        int ink = 0, most = 0, edge = 0;
        for (int k = 0; k < PIXELS; k++) {
            int at_edge = k < SIDE || k >= PIXELS - SIDE || k % SIDE == 0 || k % SIDE == SIDE - 1;
            ink += image[k];
            most = image[k] > most ? image[k] : most;
            edge |= at_edge && image[k];
        }
        edges += edge;
        expect(ink > 15 * 255 && ink < PIXELS * 255 / 2 && most > 180, "image %d: %d of ink, at most %d", i, ink / 255,
               most);
    }
    expect(edges < 100, "%d of 2000 images touch the edge", edges);
    nn_mnist_free(set);
}

static void means_of(double mean[10][PIXELS], const nn_mnist *set, const nn_mnist_part *part)
{
    memset(mean, 0, 10 * sizeof *mean);
    for (int64_t i = 0; i < part->count; i++)
        for (int k = 0; k < PIXELS; k++)
            mean[part->labels[i]][k] += nn_mnist_image(set, part, i)[k] / (double)(part->count / 10);
}

static double distance(const double *a, const double *b)
{
    double sum = 0;
    for (int k = 0; k < PIXELS; k++) sum += (a[k] - b[k]) * (a[k] - b[k]);
    return sqrt(sum);
}

/* The ten look different: the mean images are far from each other and near to themselves in the other part, and the
 * nearest mean already names most images, but not all: there is something to learn. */
TEST(the_ten_look_different)
{
    static double train[10][PIXELS], test[10][PIXELS], image[PIXELS];
    nn_mnist *set = make(2000, 1000, 3);
    int right = 0;
    if (!set) return;
    means_of(train, set, &set->train);
    means_of(test, set, &set->test);
    for (int a = 0; a < 10; a++)
        for (int b = 0; b < 10; b++) {
            double d = distance(train[a], test[b]);
            expect(a == b ? d < 350 : d > 500, "%d and %d are %g apart", a, b, d);
        }
    for (int i = 0; i < 1000; i++) {
        int best = 0;
        for (int k = 0; k < PIXELS; k++) image[k] = nn_mnist_image(set, &set->test, i)[k];
        for (int a = 1; a < 10; a++)
            if (distance(image, train[a]) < distance(image, train[best])) best = a;
        right += best == set->test.labels[i];
    }
    expect(right > 600 && right < 990, "the nearest mean names %d of 1000", right);
    nn_mnist_free(set);
}

TEST(counts_that_cannot_be_are_refused)
{
    char error[200] = "";
    expect(!nn_digits_make(0, 10, 1, error, sizeof error), "0 images");
    expect(strcmp(error, "synthetic digits: 0 + 10 images; each part needs one at least") == 0, "%s", error);
    expect(!nn_digits_make(10, -3, 1, error, sizeof error), "-3 images");
    expect(!nn_digits_make(INT64_MAX, 1, 1, error, sizeof error), "2^63 images");
    expect(strcmp(error, "synthetic digits: not enough memory for 9223372036854775807 + 1 images") == 0, "%s", error);
    expect(!nn_digits_make(0, 0, 1, NULL, 0), "0 images");
}

/* ---- Augmentation ----------------------------------------------------------------------------------------------- */

static const nn_augment_options still = {.mean = 0.1307f, .deviation = 0.3081f};
static const nn_augment_options plain = {.mean = 0, .deviation = 1};

static void paint(unsigned char *image, int64_t count)
{
    for (int64_t i = 0; i < count; i++) image[i] = (unsigned char)(i * 7 % 251);
}

/* With all strengths 0 the bits are those of the formula, for any size of image. */
TEST(no_strength_is_identity)
{
    for (int64_t rows = 1; rows < 34; rows += 3)
        for (int64_t columns = 1; columns < 34; columns += 4) {
            unsigned char image[34 * 34];
            float out[34 * 34], want[34 * 34];
            paint(image, rows * columns);
            nn_augment_image(out, image, rows, columns, &still, 1, 2, 3);
            nn_augment_plain(want, image, rows * columns, &still);
            for (int64_t i = 0; i < rows * columns; i++) {
                double exact = (image[i] / 255.0 - 0.1307) / 0.3081;
                expect(fabs(want[i] - exact) < 1e-6, "%lld x %lld, pixel %lld: %g, not %g", (long long)rows,
                       (long long)columns, (long long)i, (double)want[i], exact);
            }
            expect(memcmp(out, want, (size_t)(rows * columns) * sizeof *out) == 0, "%lld x %lld: other bits",
                   (long long)rows, (long long)columns);
        }
}

static nn_augment_options everything(void)
{
    nn_augment_options options = NN_AUGMENT_OPTIONS_DEFAULT;
    options.elastic = 1.5f;
    options.shear = 0.15f;
    options.stretch = 0.1f;
    return options;
}

TEST(the_same_key_gives_the_same_bits)
{
    unsigned char image[PIXELS];
    float first[PIXELS], other[PIXELS], again[PIXELS];
    nn_augment_options options = everything();
    nn_digits_draw(image, 8, 1, NN_DIGITS_TRAIN, 8);
    nn_augment_image(first, image, SIDE, SIDE, &options, 1, 2, 3);
    static const struct {
        uint64_t seed;
        uint32_t epoch;
        uint64_t index;
    } others[] = {
        {2, 2, 3}, {1, 3, 3}, {1, 2, 4}, {1, 3, 2}, {(uint64_t)1 << 32 | 1, 2, 3}, {1, 2, (uint64_t)1 << 32 | 3}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        nn_augment_image(other, image, SIDE, SIDE, &options, others[i].seed, others[i].epoch, others[i].index);
        nn_augment_image(again, image, SIDE, SIDE, &options, 1, 2, 3); /* what came between left no trace */
        expect(memcmp(first, again, sizeof first) == 0, "the second call differs");
        expect(memcmp(first, other, sizeof first) != 0, "key %zu gives the same image", i);
    }
}

/* Pinned, so that training gives the same file on every machine. */
TEST(augmentation_is_pinned)
{
    unsigned char image[PIXELS];
    float out[PIXELS];
    nn_augment_options options = everything(), flat = NN_AUGMENT_OPTIONS_DEFAULT;
    uint64_t bent = 0, straight = 0;
    for (uint64_t i = 0; i < 50; i++) {
        nn_digits_draw(image, (int)(i % 10), 1, NN_DIGITS_TRAIN, i);
        nn_augment_image(out, image, SIDE, SIDE, &options, 1, 4, i);
        bent = bent * 3 + hash_of(out, sizeof out);
        nn_augment_image(out, image, SIDE, SIDE, &flat, 1, 4, i);
        straight = straight * 3 + hash_of(out, sizeof out);
    }
    expect(bent == 0x3db94559ccfc72feu, "bent: 0x%016llx", (unsigned long long)bent);
    expect(straight == 0x353011e60da45b48u, "flat: 0x%016llx", (unsigned long long)straight);
}

typedef struct centre {
    double x, y;
} centre;

/* The centre of mass of the ink. */
static centre centre_of(const float *image)
{
    double mass = 0, x = 0, y = 0;
    for (int i = 0; i < PIXELS; i++) {
        mass += (double)image[i];
        x += (double)image[i] * (i % SIDE);
        y += (double)image[i] * (i / SIDE);
    }
    return (centre){x / mass, y / mass};
}

/* A round blot, bright in the middle, so that its centre tells what was done to it. */
static void blot(unsigned char *image, double x, double y)
{
    for (int i = 0; i < PIXELS; i++) {
        double d = sqrt((i % SIDE - x) * (i % SIDE - x) + (i / SIDE - y) * (i / SIDE - y));
        image[i] = (unsigned char)(d < 5 ? 250 * (1 - d / 5) : 0);
    }
}

/* Each strength does what it says, reaches nearly as far as it says and not farther. */
TEST(shifts_move_by_up_to_two_pixels)
{
    unsigned char image[PIXELS];
    float out[PIXELS];
    nn_augment_options options = plain;
    double low = 9, high = -9;
    options.shift = 2;
    blot(image, 13.5, 13.5);
    for (uint64_t i = 0; i < 500; i++) {
        nn_augment_image(out, image, SIDE, SIDE, &options, 1, 0, i);
        centre m = centre_of(out);
        double x = m.x - 13.5, y = m.y - 13.5;
        expect(fabs(x) < 2.01 && fabs(y) < 2.01, "image %d moved by %g, %g", (int)i, x, y);
        low = fmin(low, fmin(x, y)), high = fmax(high, fmax(x, y));
    }
    expect(low < -1.9 && high > 1.9, "shifts from %g to %g", low, high);
}

TEST(rotations_turn_by_up_to_ten_degrees)
{
    unsigned char image[PIXELS];
    float out[PIXELS];
    nn_augment_options options = plain;
    double low = 99, high = -99;
    options.rotation = 10;
    blot(image, 21.5, 13.5); /* to the right of the middle, by 8 */
    for (uint64_t i = 0; i < 500; i++) {
        nn_augment_image(out, image, SIDE, SIDE, &options, 1, 0, i);
        centre m = centre_of(out);
        double x = m.x - 13.5, y = m.y - 13.5, angle = atan2(y, x) * 57.29578;
        expect(fabs(angle) < 10.1 && fabs(sqrt(x * x + y * y) - 8) < 0.05, "image %d: %g degrees", (int)i, angle);
        low = fmin(low, angle), high = fmax(high, angle);
    }
    expect(low < -9.5 && high > 9.5, "turns from %g to %g", low, high);
}

TEST(scales_grow_and_shrink_by_a_tenth)
{
    unsigned char image[PIXELS];
    float out[PIXELS];
    nn_augment_options options = plain;
    double low = 9, high = 0;
    options.scale = 0.1f;
    blot(image, 21.5, 13.5);
    for (uint64_t i = 0; i < 500; i++) {
        nn_augment_image(out, image, SIDE, SIDE, &options, 1, 0, i);
        double by = (centre_of(out).x - 13.5) / 8;
        expect(by > 0.895 && by < 1.105, "image %d is scaled by %g", (int)i, by);
        low = fmin(low, by), high = fmax(high, by);
    }
    expect(low < 0.91 && high > 1.09, "scales from %g to %g", low, high);
}

TEST(stretching_keeps_the_area)
{
    unsigned char image[PIXELS], upright[PIXELS];
    float out[PIXELS];
    nn_augment_options options = plain;
    double low = 9, high = 0;
    options.stretch = 0.1f;
    blot(image, 21.5, 13.5);
    blot(upright, 13.5, 21.5);
    for (uint64_t i = 0; i < 500; i++) {
        nn_augment_image(out, image, SIDE, SIDE, &options, 1, 0, i);
        double wide = (centre_of(out).x - 13.5) / 8;
        nn_augment_image(out, upright, SIDE, SIDE, &options, 1, 0, i);
        double tall = (centre_of(out).y - 13.5) / 8;
        expect(wide > 0.895 && wide < 1.12 && fabs(wide * tall - 1) < 0.02, "image %d: %g x %g", (int)i, wide, tall);
        low = fmin(low, wide), high = fmax(high, wide);
    }
    expect(low < 0.92 && high > 1.09, "from %g to %g times as wide", low, high);
}

/* What lies on the middle line stays; what lies above it goes aside. */
TEST(slants_lean_by_up_to_their_share)
{
    unsigned char image[PIXELS], middle[PIXELS];
    float out[PIXELS];
    nn_augment_options options = plain;
    double left = 9, right = -9;
    options.shear = 0.15f;
    blot(image, 13.5, 5.5);
    blot(middle, 18.5, 13.5);
    for (uint64_t i = 0; i < 500; i++) {
        nn_augment_image(out, image, SIDE, SIDE, &options, 1, 0, i);
        centre m = centre_of(out);
        expect(fabs(m.x - 13.5) < 0.15 * 8 + 0.05 && fabs(m.y - 5.5) < 0.05, "image %d: %g, %g", (int)i, m.x, m.y);
        left = fmin(left, m.x - 13.5), right = fmax(right, m.x - 13.5);
        nn_augment_image(out, middle, SIDE, SIDE, &options, 1, 0, i);
        expect(fabs(centre_of(out).x - 18.5) < 0.05, "image %d: the middle went to %g", (int)i, centre_of(out).x);
    }
    expect(left < -1.1 && right > 1.1, "from %g to %g pixels", left, right);
}

/* Bending moves the middle of the blot by no more than the nodes move; here and there it does move it. */
TEST(bending_stays_within_its_strength)
{
    unsigned char image[PIXELS];
    float out[PIXELS];
    nn_augment_options options = plain;
    double most = 0;
    options.elastic = 1.5f;
    blot(image, 10, 17);
    for (uint64_t i = 0; i < 500; i++) {
        nn_augment_image(out, image, SIDE, SIDE, &options, 1, 0, i);
        centre m = centre_of(out);
        double by = fmax(fabs(m.x - 10), fabs(m.y - 17));
        expect(by < 1.6, "image %d moved by %g", (int)i, by);
        most = fmax(most, by);
    }
    expect(most > 0.5, "nothing moved by more than %g", most);
}

/* What comes from outside is paper, whatever the strengths; the result is within the range of the bytes. */
TEST(outside_is_paper)
{
    enum { ROWS = 9, COLUMNS = 5 };
    unsigned char image[ROWS * COLUMNS];
    float out[ROWS * COLUMNS + 2];
    nn_augment_options options = {
        .shift = 1e9f, .rotation = 45, .scale = 0.99f, .elastic = 1e9f, .mean = 0, .deviation = 1};
    memset(image, 255, sizeof image);
    for (uint64_t i = 0; i < 2000; i++) {
        out[0] = out[ROWS * COLUMNS + 1] = 77;
        if (i == 1000) options.shift = options.elastic = 3;
        nn_augment_image(out + 1, image, ROWS, COLUMNS, &options, 1, 0, i);
        for (int k = 1; k <= ROWS * COLUMNS; k++)
            expect(out[k] >= 0 && out[k] <= 1.000001f, "image %d, pixel %d: %g", (int)i, k - 1, (double)out[k]);
        expect(out[0] == 77 && out[ROWS * COLUMNS + 1] == 77, "wrote outside");
    }
}
