#pragma once

// What the CPU kernels share. Their loops are plain ones, which the compiler turns into vector
// code.

#include <cstdint>

#include "img2gray.h"
#include "scalar.h"

/// Makes GCC 12 and later compile a function once for each of these levels of x86-64. The loader
/// then picks the best that the processor has. Elsewhere there is one version, for the compiler's
/// target.
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EVERY_LEVEL \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FOR_EVERY_LEVEL
#endif

namespace img2gray::cpu {

/// How many pixels of a 16-bit type are held as floats at a time: few, so that the loops that do
/// not touch memory are short, and memory is never idle for long.
constexpr int64_t kBlock = 320;

/// Where a row's first pixel is. Rows are counted through the whole batch.
inline int64_t offset_of_row(const Layout& layout, int64_t row) {
  const int64_t image = row / layout.rows;
  return image * layout.image_stride + (row - image * layout.rows) * layout.row_stride;
}

/// 16-bit floats to float and back, many at once. `T` is Half or BFloat16.
template <typename T>
void widen(const T* from, float* to, int64_t count);
template <typename T>
void narrow(const float* from, T* to, int64_t count);

}  // namespace img2gray::cpu
