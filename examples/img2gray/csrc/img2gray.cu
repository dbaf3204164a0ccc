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

/// Four bytes of luma, from four red, four green and four blue ones (planar), or from twelve bytes
/// in which they alternate (interleaved). A dp2a multiplies two of a word's bytes with 16-bit
/// weights and adds them up, so two of them make a pixel; the result is the third byte of the sum.
template <bool kInterleaved>
__device__ __forceinline__ uint32_t luma_of_4(uint32_t a, uint32_t b, uint32_t c) {
  constexpr uint32_t kR = 19595, kG = 38470, kB = 7471, kHalf = 32768;
  constexpr uint32_t kRG = kR | kG << 16;
  uint32_t sums[4];
  if (kInterleaved) {  // a = R G B R, b = G B R G, c = B R G B
    constexpr uint32_t kGB = kG | kB << 16;
    sums[0] = __dp2a_lo(kRG, a, __dp2a_hi(kB, a, kHalf));
    sums[1] = __dp2a_hi(kR << 16, a, __dp2a_lo(kGB, b, kHalf));
    sums[2] = __dp2a_hi(kRG, b, __dp2a_lo(kB, c, kHalf));
    sums[3] = __dp2a_lo(kR << 16, c, __dp2a_hi(kGB, c, kHalf));
  } else {
    const uint32_t red_green_01 = __byte_perm(a, b, 0x5140);
    const uint32_t red_green_23 = __byte_perm(a, b, 0x7362);
    sums[0] = __dp2a_lo(kRG, red_green_01, __dp2a_lo(kB, c, kHalf));
    sums[1] = __dp2a_hi(kRG, red_green_01, __dp2a_lo(kB << 16, c, kHalf));
    sums[2] = __dp2a_lo(kRG, red_green_23, __dp2a_hi(kB, c, kHalf));
    sums[3] = __dp2a_hi(kRG, red_green_23, __dp2a_hi(kB << 16, c, kHalf));
  }
  const uint32_t low = __byte_perm(sums[0], sums[1], 0x0062);
  const uint32_t high = __byte_perm(sums[2], sums[3], 0x0062);
  return __byte_perm(low, high, 0x5410);
}

/// 16 bytes of gray, from 48 of the image.
template <typename T, bool kInterleaved>
__device__ __forceinline__ void luma_of_chunk(const uint32_t* words, uint32_t* gray) {
  if constexpr (sizeof(T) == 1) {
    constexpr int kChannel = kInterleaved ? 1 : 4;
    constexpr int kGroup = kInterleaved ? 3 : 1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t* group = words + i * kGroup;
      gray[i] = luma_of_4<kInterleaved>(group[0], group[kChannel], group[2 * kChannel]);
    }
  } else {
    constexpr int kChannel = kInterleaved ? 1 : kPixels<T>;
    constexpr int kColumn = kInterleaved ? 3 : 1;
    T values[3 * kPixels<T>];
    memcpy(values, words, sizeof(values));
    T results[kPixels<T>];
#pragma unroll
    for (int i = 0; i < kPixels<T>; ++i) {
      const T* value = values + i * kColumn;
      results[i] = luma(value[0], value[kChannel], value[2 * kChannel]);
    }
    memcpy(gray, results, sizeof(results));
  }
}

/// Rows whose pixels are adjacent: each channel's by themselves (planar), or with the three
/// channels of a pixel together (interleaved). `kAligned` promises that every row begins at a
/// multiple of 16 bytes in all that is read and written, and is whole chunks long: the usual case,
/// and then the shortest code.
template <typename T, bool kInterleaved, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    convert(const T* __restrict__ image, T* __restrict__ gray, Rows rows) {
  const unsigned row = row_of_thread();
  if (row >= rows.rows) {
    return;
  }
  image += image_of_thread() * rows.from.image + row * rows.from.row;
  gray += image_of_thread() * rows.to.image + row * rows.to.row;

  // Chunks begin where the gray image is aligned, so the first and the last of a row may be cut.
  const int lead = kAligned ? 0 : misalignment(gray) / sizeof(T);
  const int64_t first = unit_of_thread() * kPixels<T> - lead;
  if (first >= rows.columns) {
    return;
  }
  constexpr int kColumn = kInterleaved ? 3 : 1;
  const int64_t channel = kInterleaved ? 1 : rows.channel;
  const T* pixels = image + first * kColumn;

  // A cut chunk is computed whole, from pixels beside the row, if there is memory beside it.
  const T* last_plane = kInterleaved ? pixels + 2 * kPixels<T> : pixels + 2 * channel;
  if (!kAligned && !may_load(pixels, last_plane + kPixels<T>, rows.begin, rows.end)) {
#pragma unroll 1
    for (int i = 0; i < kPixels<T>; ++i) {
      if (first + i >= 0 && first + i < rows.columns) {
        const T* pixel = pixels + i * kColumn;
        gray[first + i] = luma(pixel[0], pixel[channel], pixel[2 * channel]);
      }
    }
    return;
  }

  constexpr int kLoads = kInterleaved ? 1 : 3;
  constexpr int kVectors = 3 / kLoads;
  bool aligned = true;
  if (!kAligned) {
    aligned = misalignment(pixels) == 0;
    if (!kInterleaved) {
      aligned &= misalignment(pixels + channel) == 0 && misalignment(last_plane) == 0;
    }
  }
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
  uint32_t results[4];
  luma_of_chunk<T, kInterleaved>(words, results);
  store(gray, first, kAligned ? first + kPixels<T> : rows.columns, results);
}

/// Any strides at all: a pixel for each thread.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    convert_strided(const T* __restrict__ image, T* __restrict__ gray, Rows rows) {
  const unsigned row = row_of_thread();
  const int64_t column = unit_of_thread();
  if (row >= rows.rows || column >= rows.columns) {
    return;
  }
  image += image_of_thread() * rows.from.image + row * rows.from.row + column * rows.column;
  gray += image_of_thread() * rows.to.image + row * rows.to.row + column;
  *gray = luma(image[0], image[rows.channel], image[2 * rows.channel]);
}

}  // namespace

template <typename T>
cudaError_t img2gray::cuda::img2gray(
    const T* image, T* gray, const Layout& layout, cudaStream_t stream) {
  if (layout.pixels() == 0) {
    return cudaSuccess;  // a grid without blocks is an error
  }
  Rows rows;
  rows.rows = layout.rows;
  rows.columns = layout.columns;
  rows.from = {layout.image_stride, layout.row_stride};
  rows.to = {layout.rows * layout.columns, layout.columns};
  rows.channel = layout.channel_stride;
  rows.column = layout.column_stride;
  rows.begin = image;
  rows.end = image + layout.span() + 2 * layout.channel_stride;

  const bool planar = layout.column_stride == 1;
  const bool interleaved = layout.column_stride == 3 && layout.channel_stride == 1;
  if (!planar && !interleaved) {
    const int64_t units = layout.columns;
    return launch(convert_strided<T>, image, gray, rows, layout.images, units, stream);
  }
  const bool aligned = is_aligned(image) && is_aligned(gray) && is_aligned<T>(layout.columns) &&
                       is_aligned<T>(layout.image_stride) && is_aligned<T>(layout.row_stride) &&
                       (interleaved || is_aligned<T>(layout.channel_stride));
  const auto kernel = planar && aligned ? convert<T, false, true>
                      : planar          ? convert<T, false, false>
                      : aligned         ? convert<T, true, true>
                                        : convert<T, true, false>;
  // A row that is cut at both ends has one chunk more than its length makes.
  const int64_t chunks = layout.columns / kPixels<T> + (aligned ? 0 : 2);
  return launch(kernel, image, gray, rows, layout.images, chunks, stream);
}

namespace img2gray::cuda {

template cudaError_t img2gray(const uint8_t*, uint8_t*, const Layout&, cudaStream_t);
template cudaError_t img2gray(const Half*, Half*, const Layout&, cudaStream_t);
template cudaError_t img2gray(const BFloat16*, BFloat16*, const Layout&, cudaStream_t);
template cudaError_t img2gray(const float*, float*, const Layout&, cudaStream_t);
template cudaError_t img2gray(const double*, double*, const Layout&, cudaStream_t);

}  // namespace img2gray::cuda
