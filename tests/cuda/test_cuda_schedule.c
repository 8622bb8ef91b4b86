/* The order in which blocks take tiles, of every kind of call, and the rule for a window's edge: cuda/kernels/schedule.h, window.h. */
#include "cuda/kernels/schedule.h"
#include "support/harness.h"

TEST(each_tile_is_visited_once)
{
    for (int heads = 1; heads <= 12; heads++)
        for (int tiles = 1; tiles <= 7; tiles++)
            for (int section = 1; section <= heads; section++) {
                int seen[12][7] = {{0}};
                for (int n = 0; n < heads * tiles; n++) {
                    mha_cuda_place p = mha_cuda_place_of(n, heads, tiles, section);
                    if (!expect(p.head >= 0 && p.head < heads && p.tile >= 0 && p.tile < tiles, "%d %d", p.head,
                                p.tile))
                        return;
                    expect(p.head / section == n / (section * tiles), "piece %d lies in another section", n);
                    seen[p.head][p.tile]++;
                }
                for (int n = 0; n < heads * tiles; n++)
                    expect(seen[n / tiles][n % tiles] == 1, "%d heads, %d tiles, sections of %d: tile %d, %d times",
                           heads, tiles, section, n, seen[n / tiles][n % tiles]);
            }
}

/* In order: each key tile has one block, whose part is the one that sums look for, and only the first has more than one tile. */
TEST(blocks_that_share_a_head_have_all_its_tiles)
{
    for (int heads = 1; heads <= 5; heads++)
        for (int tiles = 1; tiles <= 4; tiles++)
            for (int parts = 1; parts <= tiles; parts++) {
                int seen[5][4] = {{0}}, last = tiles;
                for (int n = 0; n < heads * parts; n++) {
                    mha_cuda_share s = mha_cuda_share_of(n, heads, tiles, parts);
                    if (!expect(s.head >= 0 && s.head < heads && s.first >= 0 && s.first + s.count <= tiles, "%d: %d",
                                s.head, s.first))
                        return;
                    expect(s.count <= last && s.count == (s.first ? 1 : tiles - parts + 1), "block %d: %d tiles", n,
                           s.count);
                    last = s.count;
                    for (int i = s.first; i < s.first + s.count; i++) {
                        seen[s.head][i]++;
                        expect(mha_cuda_part_of(i, tiles, parts) == n / heads, "tile %d of block %d", i, n);
                    }
                }
                for (int n = 0; n < heads * tiles; n++)
                    expect(seen[n / tiles][n % tiles] == 1, "%d tiles, %d parts: tile %d, %d times", tiles, parts,
                           n % tiles, seen[n / tiles][n % tiles]);
            }
}

/* Against the definition: row i sees key j if i + offset - left <= j <= i + offset + right; a negative left or right is no edge. */
TEST(rows_see_the_keys_of_their_window)
{
    enum { MOST = 9 };
    for (int n = 0; n < 20000; n++) {
        rng r = rng_make(11, (uint64_t)n);
        const int queries = (int)rng_between(&r, 1, MOST), length = (int)rng_between(&r, 0, MOST),
                  offset = (int)rng_between(&r, -2 * MOST, 2 * MOST), left = (int)rng_between(&r, -1, MOST),
                  right = (int)rng_between(&r, -1, MOST), row = (int)rng_between(&r, 0, queries - 1);
        const int32_t first = mha_cuda_left_edge(offset, left, queries, length),
                      last = mha_cuda_right_edge(offset, right, queries, length);
        const int32_t low = mha_cuda_first_key(row, first), end = mha_cuda_end_of_keys(length, row, last);
        for (int j = 0; j < length; j++) {
            const bool sees = (left < 0 || j >= row + offset - left) && (right < 0 || j <= row + offset + right);
            const bool by_row = j >= low && j < end, by_last = j >= low && j <= mha_cuda_last_key(length, row, last),
                       by_key = row >= mha_cuda_first_row(j, last) && row < mha_cuda_end_of_rows(queries, j, first);
            expect(by_row == sees && by_last == sees && by_key == sees,
                   "case %d, row %d, key %d: %d, %d and %d, must be %d", n, row, j, by_row, by_last, by_key, sees);
        }
    }
}

/* Against the definition: row i sees key j if j <= i + offset. */
TEST(tiles_see_what_their_rows_see)
{
    enum { ROWS = 6, KEYS = 4 };
    for (int Tq = 1; Tq <= 20; Tq++)
        for (int Tk = 0; Tk <= 20; Tk++)
            for (int offset = -Tq; offset <= Tk; offset++) {
                int row_tiles = (Tq + ROWS - 1) / ROWS;
                for (int tile = 0; tile < row_tiles; tile++) {
                    int last = (tile + 1) * ROWS - 1 + offset; /* the last key that a row of the tile would see */
                    int keys = last < 0 ? 0 : last + 1 < Tk ? last + 1 : Tk;
                    int got = mha_cuda_blocks_seen(tile * ROWS, ROWS, KEYS, Tk, offset, 1);
                    expect(got == (keys + KEYS - 1) / KEYS, "%dx%d, offset %d, tile %d: %d blocks", Tq, Tk, offset,
                           tile, got);
                    expect(mha_cuda_blocks_seen(tile * ROWS, ROWS, KEYS, Tk, offset, 0) == (Tk + KEYS - 1) / KEYS,
                           "full");
                }
                for (int key = 0; key < Tk; key += KEYS) {
                    int first = 0;
                    while (first < row_tiles && (first + 1) * ROWS - 1 + offset < key) first++;
                    int got = mha_cuda_first_rows(key, ROWS, row_tiles, offset, 1);
                    expect(got == first, "%dx%d, offset %d, key %d: from tile %d, must be %d", Tq, Tk, offset, key, got,
                           first);
                    expect(mha_cuda_first_rows(key, ROWS, row_tiles, offset, 0) == 0, "full");
                }
            }
}

/* No two sequences that lie packed have a tile number in common: numbers do not overlap, and are within their number. */
TEST(tiles_of_packed_sequences_have_numbers_of_their_own)
{
    enum { SIZE = 4, SEQUENCES = 5, MOST = 11 };
    for (int n = 0; n < 4000; n++) {
        rng r = rng_make(7, (uint64_t)n);
        int32_t row = 0, end = 0;
        for (int32_t b = 0; b < SEQUENCES; b++) {
            int32_t rows = (int32_t)rng_between(&r, 0, MOST), first = mha_cuda_first_slot(b, row, SIZE, 1, 1);
            if (!expect(first >= end, "case %d: sequence %d begins with %d, before %d", n, b, first, end)) return;
            end = first + (rows + SIZE - 1) / SIZE;
            row += rows + (int32_t)rng_between(&r, 0, 2); /* rows of no sequence */
        }
        expect(end <= mha_cuda_slots(SEQUENCES, row, SIZE, 1, 1), "case %d: %d tiles", n, end);
        expect(mha_cuda_first_slot(3, 0, SIZE, 7, 0) == 21 && mha_cuda_slots(3, 99, SIZE, 7, 0) == 21, "not packed");
    }
}

/* A sequence is computed by tiles where there are no limits, and otherwise by the method of the first limit that it is within. */
TEST(the_method_of_a_sequence_is_that_of_the_smallest_limit_it_is_within)
{
    const mha_cuda_limits none = {MHA_CUDA_NONE, MHA_CUDA_NONE, MHA_CUDA_NONE, MHA_CUDA_NONE, MHA_CUDA_NONE};
    for (int n = 0; n < 4000; n++) {
        rng r = rng_make(13, (uint64_t)n);
        const int32_t rows = (int32_t)rng_between(&r, 0, 300), keys = (int32_t)rng_between(&r, 0, 600);
        mha_cuda_limits most = none;
        expect(mha_cuda_method_of(none, rows, keys) == MHA_CUDA_BY_TILES, "%d rows without limits", rows);
        most.small = 128;
        const bool small = rows <= 128 && keys <= 128;
        expect((mha_cuda_method_of(most, rows, keys) == MHA_CUDA_BY_SMALL_HEADS) == small, "%d rows, %d keys", rows,
               keys);
        most.decoded = 8, most.decoded_many = 16, most.ordered = 512, most.one_tile = MHA_CUDA_ONE_TILE_ROWS;
        const mha_cuda_method all = mha_cuda_method_of(most, rows, keys), few = mha_cuda_method_of(most, rows % 9, 600);
        expect((all == MHA_CUDA_BY_SMALL_HEADS) == small && few == MHA_CUDA_BY_DECODING, "%d rows, %d keys: %d and %d",
               rows, keys, all, few);
    }
}
