/* How functions of the device are declared. */
#ifndef MHA_CUDA_INLINE_CUH
#define MHA_CUDA_INLINE_CUH

#define MHA_DEVICE __device__ __forceinline__

#endif
