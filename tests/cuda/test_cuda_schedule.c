/* The order in which blocks take tiles, of every kind of call: cuda/schedule.h. */
#include "cuda/schedule.h"
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

/* The numbers of tiles of sequences that lie packed do not meet, and are within their number. */
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
