#include "img2gray.h"

#include <cstring>

#include "scalar.h"
#include "vectors.cuh"

namespace {

using namespace img2gray;

// A thread computes the pixels that one store of 16 bytes writes, from 48 bytes of the image. There
// is no loop: the grid has a thread for every such chunk, and as each has 48 bytes on their way,
// the multiprocessors keep more than enough reads in flight.

template <typename T>
constexpr int kPixels = kVectorBytes / sizeof(T);

/// Rows whose pixels are adjacent: each channel's by themselves (planar), or with the three
/// channels of a pixel together (interleaved).
template <typename T, bool kInterleaved>
__global__ void __launch_bounds__(Grid::kThreads)
    convert(const T* __restrict__ image, T* __restrict__ gray, Layout layout, unsigned tiles) {
  const int64_t row = row_of_thread(tiles);
  if (row >= layout.images * layout.rows) {
    return;
  }

  // Chunks begin where the gray image is aligned, so the first and the last of a row may be cut.
  T* gray_row = gray + row * layout.columns;
  const int64_t first =
      unit_of_thread(tiles) * kPixels<T> - misalignment(gray_row) / int{sizeof(T)};
  const int64_t end = first + kPixels<T>;

  const int64_t channel = kInterleaved ? 1 : layout.channel_stride;
  const int64_t column = kInterleaved ? 3 : 1;
  const T* pixels = image + layout.offset(row) + first * column;
  bool aligned = misalignment(pixels) == 0;
  if (!kInterleaved) {
    aligned &= misalignment(pixels + channel) == 0 && misalignment(pixels + 2 * channel) == 0;
  }
  const int margin = aligned ? 0 : kPixels<T>;  // what load_misaligned reads beside the chunk

  if (first >= margin && end + margin <= layout.columns) {
    constexpr int kLoads = kInterleaved ? 1 : 3;
    constexpr int kVectors = 3 / kLoads;
    uint32_t words[12];
    if (aligned) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        load_aligned<kVectors>(pixels + i * channel, words + 4 * i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        load_misaligned<kVectors>(pixels + i * channel, words + 4 * i);
      }
    }

    T values[3 * kPixels<T>];
    memcpy(values, words, sizeof(values));
    T results[kPixels<T>];
    constexpr int kChannel = kInterleaved ? 1 : kPixels<T>;
    constexpr int kColumn = kInterleaved ? 3 : 1;
#pragma unroll
    for (int i = 0; i < kPixels<T>; ++i) {
      const T* value = values + i * kColumn;
      results[i] = luma(value[0], value[kChannel], value[2 * kChannel]);
    }
    store(gray_row + first, results);
  } else {
    for (int i = 0; i < kPixels<T>; ++i) {
      if (first + i >= 0 && first + i < layout.columns) {
        const T* pixel = pixels + i * column;
        gray_row[first + i] = luma(pixel[0], pixel[channel], pixel[2 * channel]);
      }
    }
  }
}

/// Any strides at all: a pixel for each thread.
template <typename T>
__global__ void __launch_bounds__(Grid::kThreads) convert_strided(
    const T* __restrict__ image, T* __restrict__ gray, Layout layout, unsigned tiles) {
  const int64_t row = row_of_thread(tiles);
  const int64_t column = unit_of_thread(tiles);
  if (row >= layout.images * layout.rows || column >= layout.columns) {
    return;
  }
  const T* pixel = image + layout.offset(row) + column * layout.column_stride;
  gray[row * layout.columns + column] =
      luma(pixel[0], pixel[layout.channel_stride], pixel[2 * layout.channel_stride]);
}

}  // namespace

template <typename T>
cudaError_t img2gray::cuda::img2gray(
    const T* image, T* gray, const Layout& layout, cudaStream_t stream) {
  if (layout.pixels() == 0) {
    return cudaSuccess;  // a grid without blocks is an error
  }
  const bool planar = layout.column_stride == 1;
  const bool interleaved = layout.column_stride == 3 && layout.channel_stride == 1;
  const auto kernel = planar        ? convert<T, false>
                      : interleaved ? convert<T, true>
                                    : convert_strided<T>;

  // Where chunks are cut at both ends of a row, they are one more than the row's length makes.
  const bool whole =
      layout.columns % kPixels<T> == 0 && reinterpret_cast<uintptr_t>(gray) % kVectorBytes == 0;
  const int64_t chunks = layout.columns / kPixels<T> + (whole ? 0 : 2);
  const Grid grid(layout.images * layout.rows, planar || interleaved ? chunks : layout.columns);
  if (grid.blocks > INT32_MAX) {
    return cudaErrorInvalidConfiguration;
  }
  kernel<<<static_cast<unsigned>(grid.blocks), grid.threads, 0, stream>>>(
      image, gray, layout, grid.tiles);
  return cudaGetLastError();
}

namespace img2gray::cuda {

template cudaError_t img2gray(const uint8_t*, uint8_t*, const Layout&, cudaStream_t);
template cudaError_t img2gray(const Half*, Half*, const Layout&, cudaStream_t);
template cudaError_t img2gray(const BFloat16*, BFloat16*, const Layout&, cudaStream_t);
template cudaError_t img2gray(const float*, float*, const Layout&, cudaStream_t);
template cudaError_t img2gray(const double*, double*, const Layout&, cudaStream_t);

}  // namespace img2gray::cuda
