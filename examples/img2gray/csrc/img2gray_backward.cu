#include "img2gray_backward.h"

#include <cstring>

#include "scalar.h"
#include "vectors.cuh"

namespace {

using namespace img2gray;

// As in img2gray.cu: a thread reads 16 bytes and writes three times as many.

template <typename T>
constexpr int kPixels = kVectorBytes / sizeof(T);

/// Rows whose pixels are adjacent.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    spread(const T* __restrict__ grad, T* __restrict__ image_grad, Rows rows) {
  const unsigned row = row_of_thread();
  if (row >= rows.rows) {
    return;
  }
  grad += image_of_thread() * rows.from.image + row * rows.from.row;
  image_grad += image_of_thread() * rows.to.image + row * rows.to.row;

  // Chunks begin where the plane that is written is aligned. If all three planes agree on that, one
  // read serves them.
  const bool planes_agree = rows.channel % kPixels<T> == 0;
  T values[kPixels<T>];
#pragma unroll
  for (int c = 0; c < 3; ++c, image_grad += rows.channel) {
    const int lead = misalignment(image_grad) / sizeof(T);
    const int64_t first = unit_of_thread() * kPixels<T> - lead;
    if (first >= rows.columns) {
      continue;
    }
    if (c == 0 || !planes_agree) {
      const T* from = grad + first;
      if (!may_load(from, from + kPixels<T>, rows.begin, rows.end)) {
#pragma unroll
        for (int i = 0; i < kPixels<T>; ++i) {
          values[i] = first + i >= 0 && first + i < rows.columns ? from[i] : T(0.0f);
        }
      } else {
        uint32_t words[4];
        if (misalignment(from) == 0) {
          load_aligned<1>(from, words);
        } else {
          load_misaligned<1>(from, words);
        }
        memcpy(values, words, sizeof(values));
      }
    }
    T shares[kPixels<T>];
#pragma unroll
    for (int i = 0; i < kPixels<T>; ++i) {
      shares[i] = share(c, values[i]);
    }
    store(image_grad, first, rows.columns, shares);
  }
}

/// Any strides at all: a pixel for each thread.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    spread_strided(const T* __restrict__ grad, T* __restrict__ image_grad, Rows rows) {
  const unsigned row = row_of_thread();
  const int64_t column = unit_of_thread();
  if (row >= rows.rows || column >= rows.columns) {
    return;
  }
  grad += image_of_thread() * rows.from.image + row * rows.from.row + column * rows.column;
  image_grad += image_of_thread() * rows.to.image + row * rows.to.row + column;
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    image_grad[c * rows.channel] = share(c, *grad);
  }
}

}  // namespace

template <typename T>
cudaError_t img2gray::cuda::img2gray_backward(
    const T* grad, T* image_grad, const Layout& layout, cudaStream_t stream) {
  if (layout.pixels() == 0) {
    return cudaSuccess;  // a grid without blocks is an error
  }
  const int64_t image_pixels = layout.rows * layout.columns;
  Rows rows;
  rows.rows = layout.rows;
  rows.columns = layout.columns;
  rows.from = {layout.image_stride, layout.row_stride};
  rows.to = {3 * image_pixels, layout.columns};
  rows.channel = image_pixels;
  rows.column = layout.column_stride;
  rows.begin = grad;
  rows.end = grad + layout.span();

  if (layout.column_stride != 1) {
    const int64_t units = layout.columns;
    return launch(spread_strided<T>, grad, image_grad, rows, layout.images, units, stream);
  }
  // A row that is cut at both ends has one chunk more than its length makes.
  const bool whole = is_aligned(image_grad) && is_aligned<T>(layout.columns);
  const int64_t chunks = layout.columns / kPixels<T> + (whole ? 0 : 2);
  return launch(spread<T>, grad, image_grad, rows, layout.images, chunks, stream);
}

namespace img2gray::cuda {

template cudaError_t img2gray_backward(const Half*, Half*, const Layout&, cudaStream_t);
template cudaError_t img2gray_backward(const BFloat16*, BFloat16*, const Layout&, cudaStream_t);
template cudaError_t img2gray_backward(const float*, float*, const Layout&, cudaStream_t);
template cudaError_t img2gray_backward(const double*, double*, const Layout&, cudaStream_t);

}  // namespace img2gray::cuda
