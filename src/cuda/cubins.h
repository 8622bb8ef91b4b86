/* The compiled kernels, embedded by the build (cmake/cuda.cmake). */
#ifndef MHA_CUDA_CUBINS_H
#define MHA_CUDA_CUBINS_H

extern const unsigned char mha_cubin_forward[], mha_cubin_backward[], mha_cubin_rows[], mha_cubin_general_forward[],
    mha_cubin_general_backward[], mha_cubin_decode[];

#endif
