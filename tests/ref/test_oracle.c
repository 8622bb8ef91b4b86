/* The oracle and the number types by themselves: known answers, and cases small enough to be worked out on paper. */
#include "support/harness.h"
#include "support/numbers.h"

#include <ref.h>

/* ---- Philox: the authors' known answers (Random123, kat_vectors) ------------------------------------------------ */

static void expect_philox(const uint32_t counter[4], const uint32_t key[2], const uint32_t want[4])
{
    uint32_t got[4];
    ref_philox(got, counter, key);
    expect(!memcmp(got, want, sizeof got), "philox gives %08x %08x %08x %08x, not %08x %08x %08x %08x", got[0], got[1],
           got[2], got[3], want[0], want[1], want[2], want[3]);
}

TEST(philox_gives_the_known_answers)
{
    expect_philox((uint32_t[]){0, 0, 0, 0}, (uint32_t[]){0, 0},
                  (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    expect_philox((uint32_t[]){~0u, ~0u, ~0u, ~0u}, (uint32_t[]){~0u, ~0u},
                  (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    expect_philox((uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, (uint32_t[]){0xa4093822, 0x299f31d0},
                  (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(dropout_keeps_the_share_it_says)
{
    int kept = 0, n = 40000;
    for (int j = 0; j < n; j++) kept += ref_keeps(0.3, 7, 5, 2, 3, j);
    expect(fabs(kept - 0.7 * n) < 400, "%d of %d kept", kept, n); /* four standard deviations */
    for (int j = 0; j < 100; j++) expect(!ref_keeps(1, 7, 5, 2, 3, j), "dropout 1 keeps key %d", j);
    for (int j = 0; j < 100; j++) expect(ref_keeps(0, 7, 5, 2, 3, j), "dropout 0 drops key %d", j);
}

/* ---- Attention, worked out by hand ------------------------------------------------------------------------------ */

static bool close(double a, double b) { return fabs(a - b) < 1e-14; }

/* One head of width 1 with q = 1 and scale 1: the scores are the keys themselves. */
static ref_attention line(int64_t Tq, int64_t Tk, const double *ones, const double *k, const double *v)
{
    return (ref_attention){.B = 1,
                           .H = 1,
                           .G = 1,
                           .Tq = Tq,
                           .Tk = Tk,
                           .D = 1,
                           .E = 1,
                           .q = ones,
                           .k = k,
                           .v = v,
                           .scale = 1,
                           .window_left = -1,
                           .window_right = -1};
}

static const double ones[4] = {1, 1, 1, 1};
static const double logs[3] = {0, 0.6931471805599453, 1.0986122886681098}; /* log 1, log 2, log 3 */
static const double values[3] = {6, 60, 600};

TEST(softmax_of_logarithms)
{
    double out, lse, p[3];
    ref_attention a = line(1, 3, ones, logs, values);
    ref_attention_forward(&a, &(ref_result){.out = &out, .lse = &lse, .stage = {[REF_SOFTMAX] = p}});
    expect(close(p[0], 1 / 6.0) && close(p[1], 2 / 6.0) && close(p[2], 3 / 6.0), "%g %g %g", p[0], p[1], p[2]);
    expect(fabs(out - 321) < 1e-11, "out %.17g", out);
    expect(close(lse, log(6)), "lse %g", lse);
}

TEST(a_sink_takes_its_share)
{
    double out, lse, sink = 1.791759469228055; /* log 6: half of everything */
    ref_attention a = line(1, 3, ones, logs, values);
    a.sinks = &sink;
    ref_attention_forward(&a, &(ref_result){.out = &out, .lse = &lse});
    expect(fabs(out - 160.5) < 1e-11 && close(lse, log(12)), "out %.17g, lse %.17g", out, lse);
    int64_t none = 0;
    a.key_lengths = &none;
    ref_attention_forward(&a, &(ref_result){.out = &out, .lse = &lse});
    expect(out == 0 && lse == -INFINITY, "without a key: out %g, lse %g", out, lse);
}

TEST(softcap_bias_and_alibi)
{
    double s[3], capped[3], bias[3] = {0.5, -INFINITY, 0.25}, slope = 0.125;
    int64_t offset = 5;
    ref_attention a = line(1, 3, ones, logs, values);
    a.softcap = 0.5;
    a.bias = bias;
    a.alibi_slopes = &slope;
    a.align = REF_OFFSET;
    a.offsets = &offset;
    ref_attention_forward(&a, &(ref_result){.stage = {[REF_CAPPED] = capped, [REF_MASKED] = s}});
    for (int j = 0; j < 3; j++) expect(close(capped[j], 0.5 * tanh(2 * logs[j])), "capped[%d] %g", j, capped[j]);
    expect(close(s[0], 0.5 - 0.625), "s[0] %g", s[0]);
    expect(s[1] == -INFINITY, "s[1] %g", s[1]);
    expect(close(s[2], capped[2] + 0.25 - 0.375), "s[2] %g", s[2]);
}

/* ---- Who sees whom: rows of three or four keys, 1 = visible ----------------------------------------------------- */

static void expect_sight(const ref_attention *a, const char *rows)
{
    for (int64_t i = 0; i < a->Tq; i++)
        for (int64_t j = 0; j < a->Tk; j++)
            expect(ref_visible(a, 0, 0, i, j) == (rows[i * (a->Tk + 1) + j] == '1'), "row %d, key %d of %s", (int)i,
                   (int)j, rows);
}

TEST(sight)
{
    int64_t offset = 2, length = 3;
    ref_attention a = line(3, 4, ones, NULL, NULL);
    a.causal = true;
    expect_sight(&a, "1000 1100 1110");
    a.align = REF_BOTTOM_RIGHT;
    expect_sight(&a, "1100 1110 1111");
    a.key_lengths = &length;
    expect_sight(&a, "1000 1100 1110");
    a.align = REF_OFFSET;
    a.offsets = &offset;
    expect_sight(&a, "1110 1110 1110");
    a.key_lengths = NULL;
    a.window_left = 1;
    expect_sight(&a, "0110 0011 0001");
    a.causal = false;
    a.align = REF_TOP_LEFT;
    a.window_left = 0;
    a.window_right = 1;
    expect_sight(&a, "1100 0110 0011");
    const bool mask[] = {1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0};
    a.mask = mask;
    expect_sight(&a, "1000 0110 0010");
}

TEST(query_heads_share_the_keys_of_their_group)
{
    double q[4] = {1, 1, 1, 1}, k[2] = {0, 0}, v[2] = {10, 20}, out[4];
    ref_attention a = {.B = 1,
                       .H = 4,
                       .G = 2,
                       .Tq = 1,
                       .Tk = 1,
                       .D = 1,
                       .E = 1,
                       .q = q,
                       .k = k,
                       .v = v,
                       .scale = 1,
                       .window_left = -1,
                       .window_right = -1};
    ref_attention_forward(&a, &(ref_result){.out = out});
    expect(out[0] == 10 && out[1] == 10 && out[2] == 20 && out[3] == 20, "%g %g %g %g", out[0], out[1], out[2], out[3]);
}

/* ---- The float types -------------------------------------------------------------------------------------------- */

TEST(float16_and_bfloat16_round_trip)
{
    for (int bits = 0; bits < 65536; bits++) {
        double half = float16_to((uint16_t)bits), brain = bfloat16_to((uint16_t)bits);
        if (!isnan(half)) expect(float16_from(half) == bits, "float16 %04x is %g", (unsigned)bits, half);
        if (!isnan(brain)) expect(bfloat16_from(brain) == bits, "bfloat16 %04x is %g", (unsigned)bits, brain);
    }
}

TEST(float16_and_bfloat16_round_to_even)
{
    expect(float16_from(1) == 0x3C00 && float16_from(-2) == 0xC000 && float16_from(65504) == 0x7BFF, "plain numbers");
    expect(float16_from(65519) == 0x7BFF && float16_from(65520) == 0x7C00, "the edge of infinity");
    expect(float16_from(1 + 0x1p-11) == 0x3C00 && float16_from(1 + 3 * 0x1p-11) == 0x3C02, "ties go to even");
    expect(float16_from(0x1p-24) == 1 && float16_from(0x1p-25) == 0 && float16_from(0x1.8p-24) == 2, "subnormals");
    expect(bfloat16_from(1) == 0x3F80 && bfloat16_from(1 + 0x1p-8) == 0x3F80, "ties go to even");
    expect(bfloat16_from(1 + 3 * 0x1p-8) == 0x3F82 && bfloat16_from(3.4e38) == 0x7F80, "up, and to infinity");
}
