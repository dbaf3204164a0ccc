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
__global__ void __launch_bounds__(Grid::kThreads)
    spread(const T* __restrict__ grad, T* __restrict__ image_grad, Layout layout, unsigned tiles) {
  const int64_t row = row_of_thread(tiles);
  if (row >= layout.images * layout.rows) {
    return;
  }
  const int64_t image_pixels = layout.rows * layout.columns;
  const int64_t image = layout.images == 1 ? 0 : row / layout.rows;
  const T* grad_row = grad + layout.offset(row);
  T* plane_row = image_grad + row * layout.columns + 2 * image * image_pixels;

  // Chunks begin where the plane that is written is aligned. If all three planes agree on that, one
  // read serves them.
  const bool planes_agree = image_pixels % kPixels<T> == 0;
  T values[kPixels<T>];
#pragma unroll
  for (int c = 0; c < 3; ++c, plane_row += image_pixels) {
    const int64_t first =
        unit_of_thread(tiles) * kPixels<T> - misalignment(plane_row) / int{sizeof(T)};
    const int64_t end = first + kPixels<T>;
    const bool aligned = misalignment(grad_row + first) == 0;
    const int margin = aligned ? 0 : kPixels<T>;  // what load_misaligned reads beside the chunk
    if (first >= margin && end + margin <= layout.columns) {
      if (c == 0 || !planes_agree) {
        uint32_t words[4];
        if (aligned) {
          load_aligned<1>(grad_row + first, words);
        } else {
          load_misaligned<1>(grad_row + first, words);
        }
        memcpy(values, words, sizeof(values));
      }
      T shares[kPixels<T>];
#pragma unroll
      for (int i = 0; i < kPixels<T>; ++i) {
        shares[i] = share(c, values[i]);
      }
      store(plane_row + first, shares);
    } else {
      for (int i = 0; i < kPixels<T>; ++i) {
        if (first + i >= 0 && first + i < layout.columns) {
          plane_row[first + i] = share(c, grad_row[first + i]);
        }
      }
    }
  }
}

/// Any strides at all: a pixel for each thread.
template <typename T>
__global__ void __launch_bounds__(Grid::kThreads) spread_strided(
    const T* __restrict__ grad, T* __restrict__ image_grad, Layout layout, unsigned tiles) {
  const int64_t row = row_of_thread(tiles);
  const int64_t column = unit_of_thread(tiles);
  if (row >= layout.images * layout.rows || column >= layout.columns) {
    return;
  }
  const int64_t image_pixels = layout.rows * layout.columns;
  const int64_t image = layout.images == 1 ? 0 : row / layout.rows;
  const T value = grad[layout.offset(row) + column * layout.column_stride];
  T* pixel = image_grad + row * layout.columns + column + 2 * image * image_pixels;
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    pixel[c * image_pixels] = share(c, value);
  }
}

}  // namespace

template <typename T>
cudaError_t img2gray::cuda::img2gray_backward(
    const T* grad, T* image_grad, const Layout& layout, cudaStream_t stream) {
  if (layout.pixels() == 0) {
    return cudaSuccess;  // a grid without blocks is an error
  }
  const bool adjacent = layout.column_stride == 1;
  const auto kernel = adjacent ? spread<T> : spread_strided<T>;

  // Where chunks are cut at both ends of a row, they are one more than the row's length makes.
  const bool whole = layout.columns % kPixels<T> == 0 &&
                     reinterpret_cast<uintptr_t>(image_grad) % kVectorBytes == 0;
  const int64_t chunks = layout.columns / kPixels<T> + (whole ? 0 : 2);
  const Grid grid(layout.images * layout.rows, adjacent ? chunks : layout.columns);
  if (grid.blocks > INT32_MAX) {
    return cudaErrorInvalidConfiguration;
  }
  kernel<<<static_cast<unsigned>(grid.blocks), grid.threads, 0, stream>>>(
      grad, image_grad, layout, grid.tiles);
  return cudaGetLastError();
}

namespace img2gray::cuda {

template cudaError_t img2gray_backward(const Half*, Half*, const Layout&, cudaStream_t);
template cudaError_t img2gray_backward(const BFloat16*, BFloat16*, const Layout&, cudaStream_t);
template cudaError_t img2gray_backward(const float*, float*, const Layout&, cudaStream_t);
template cudaError_t img2gray_backward(const double*, double*, const Layout&, cudaStream_t);

}  // namespace img2gray::cuda
