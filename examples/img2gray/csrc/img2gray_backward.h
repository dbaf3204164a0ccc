#pragma once

#include <cstdint>

#include "img2gray.h"

#ifdef __CUDACC__
#define IMG2GRAY_FUNCTION __host__ __device__ __forceinline__
#else
#define IMG2GRAY_FUNCTION inline
#endif

namespace img2gray {

/// The share of gray's gradient that goes to channel 0, 1 or 2.
template <typename T>
IMG2GRAY_FUNCTION T share(int channel, T grad) {
  using W = Wide<T>;
  const W weight = channel == 0 ? W(kRed) : channel == 1 ? W(kGreen) : W(kBlue);
  return T(weight * W(grad));
}

// `T` is Half, BFloat16, float or double. `layout` is that of `grad`, which has one channel;
// `image_grad` is dense: [images, 3, rows, columns].

namespace cpu {

/// Computes what comes of the pixels of `grad` from `begin` up to `end`, counted through the batch.
template <typename T>
void img2gray_backward(
    const T* grad, T* image_grad, const Layout& layout, int64_t begin, int64_t end);

}  // namespace cpu

#ifdef CUDA_KERNEL
namespace cuda {

template <typename T>
cudaError_t img2gray_backward(
    const T* grad, T* image_grad, const Layout& layout, cudaStream_t stream);

}  // namespace cuda
#endif

}  // namespace img2gray

#undef IMG2GRAY_FUNCTION
