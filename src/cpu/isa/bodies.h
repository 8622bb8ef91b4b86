/* Every kernel body over the vocabulary included before it, and the table of them. An instruction set is a file that
 * names itself, includes its vocabulary and then this. */
#include "cpu/isa/kernels.h"
#include "cpu/isa/repeat.h"
#include "core/half.h"
#include "core/philox.h"
#include <string.h>

#include "cpu/isa/product_body.h"
#include "cpu/isa/softmax_body.h"
#include "cpu/isa/score_body.h"
#include "cpu/isa/stats_body.h"
#include "cpu/isa/row_body.h"
#include "cpu/isa/some_body.h"
#include "cpu/isa/activation_body.h"
#include "cpu/isa/norm_body.h"
#include "cpu/isa/numbers_body.h"
#include "cpu/isa/gemm_body.h"
#include "cpu/isa/thin_body.h"

#define JOIN(a, b)    a##b
#define TABLE_OF(isa) JOIN(mha_kernels_, isa)
#define TEXT(x)       #x
#define NAME_OF(isa)  TEXT(isa)

const mha_kernels TABLE_OF(ISA) = {
    .name = NAME_OF(ISA),
    .lanes = VF,
    .panel_rows = BLOCK_ROWS,
    .panel_cols = PANEL,
    .along = VA == 1,
#define OP(result, name, arguments) .name = name,
#include "cpu/isa/ops.def"
#undef OP
};
