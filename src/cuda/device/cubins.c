/* The compiled kernels as bytes: MHA_CUBINS is the folder where the build puts them. */

#define MODULE(folder, name)                               \
    __asm__(".pushsection .rodata\n"                       \
            ".balign 64\n"                                 \
            ".globl mha_cubin_" #name "\n"                 \
            ".hidden mha_cubin_" #name "\n"                \
            "mha_cubin_" #name ":\n"                       \
            ".incbin \"" MHA_CUBINS "/" #name ".cubin\"\n" \
            ".popsection\n");

#include "cuda/kernels/kernels.def"
