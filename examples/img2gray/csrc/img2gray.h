#pragma once

#include <cstdint>
#include <type_traits>

#include "scalar.h"

#ifdef CUDA_KERNEL
#include <cuda_runtime_api.h>
#endif

#ifdef __CUDACC__
#define IMG2GRAY_FUNCTION __host__ __device__ __forceinline__
#else
#define IMG2GRAY_FUNCTION inline
#endif

namespace img2gray {

/// How a batch of images lies in memory. Strides count elements, and may be anything.
struct Layout {
  int64_t images;
  int64_t rows;
  int64_t columns;
  int64_t image_stride;
  int64_t channel_stride;
  int64_t row_stride;
  int64_t column_stride;

  int64_t pixels() const {
    return images * rows * columns;
  }

  /// How many elements of memory one channel extends over, if there are pixels.
  int64_t span() const {
    return (images - 1) * image_stride + (rows - 1) * row_stride + (columns - 1) * column_stride +
           1;
  }
};

// --- One pixel ---------------------------------------------------------------------------------

// Products and sums that are never fused into one operation. A fused one rounds once instead of
// twice and not every processor has it, so only without it do all of them give the same bits.
#ifdef __CUDA_ARCH__
__device__ __forceinline__ float product(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ __forceinline__ double product(double a, double b) {
  return __dmul_rn(a, b);
}
__device__ __forceinline__ float sum(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ __forceinline__ double sum(double a, double b) {
  return __dadd_rn(a, b);
}
#else
// The compiler is told so in img2gray.cpp.
template <typename T>
T product(T a, T b) {
  return a * b;
}
template <typename T>
T sum(T a, T b) {
  return a + b;
}
#endif

// ITU-R BT.601.
constexpr double kRed = 0.299;
constexpr double kGreen = 0.587;
constexpr double kBlue = 0.114;

/// The type that values of type `T` are computed in, before one rounding to `T`.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// `(0.299 red + 0.587 green) + 0.114 blue`, with these roundings.
template <typename W>
IMG2GRAY_FUNCTION W weighted_sum(W red, W green, W blue) {
  const W warm = sum(product(W(kRed), red), product(W(kGreen), green));
  return sum(warm, product(W(kBlue), blue));
}

/// Half, BFloat16 and double.
template <typename T>
IMG2GRAY_FUNCTION T luma(T red, T green, T blue) {
  using W = Wide<T>;
  return T(weighted_sum<W>(red, green, blue));
}

/// What rounding took from `total`, the rounded sum of `a` and `b`: exactly (Knuth's two-sum).
IMG2GRAY_FUNCTION float lost(float a, float b, float total) {
  const float b_part = sum(total, -a);
  const float a_part = sum(total, -b_part);
  return sum(sum(a, -a_part), sum(b, -b_part));
}

/// Float has no wider type to be computed in, so its five roundings could add up to two units in
/// the last place. Most of each weight is therefore a power of two, 1/4 + 0.049, 1/2 + 0.087 and
/// 1/8 - 0.011. Those products are exact, the largest sum of them is corrected by what it lost, and
/// the other roundings before the last two concern small numbers. Off by one unit at most, where no
/// channel is negative.
IMG2GRAY_FUNCTION float luma(float red, float green, float blue) {
  const float quarter = product(0.25f, red);
  const float half = product(0.5f, green);
  const float warm = sum(quarter, half);
  const float rest = sum(sum(product(0.049f, red), product(0.087f, green)), product(-0.011f, blue));
  float correction = sum(rest, lost(quarter, half, warm));
  correction = correction - correction == 0.0f ? correction : 0.0f;  // of infinities there is none
  return sum(warm, sum(product(0.125f, blue), correction));
}

/// The weights in units of 2^-16, and rounding to nearest: what Pillow's convert("L") computes.
IMG2GRAY_FUNCTION uint8_t luma(uint8_t red, uint8_t green, uint8_t blue) {
  return uint8_t((19595u * red + 38470u * green + 7471u * blue + 32768u) >> 16);
}

// --- Launchers ---------------------------------------------------------------------------------

// `T` is uint8_t, Half, BFloat16, float or double. `gray` is dense: [images, rows, columns].

namespace cpu {

/// Computes the pixels from `begin` up to `end`, counted through the whole batch.
template <typename T>
void img2gray(const T* image, T* gray, const Layout& layout, int64_t begin, int64_t end);

}  // namespace cpu

#ifdef CUDA_KERNEL
namespace cuda {

template <typename T>
cudaError_t img2gray(const T* image, T* gray, const Layout& layout, cudaStream_t stream);

}  // namespace cuda
#endif

}  // namespace img2gray

#undef IMG2GRAY_FUNCTION
