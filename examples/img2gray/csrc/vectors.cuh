#pragma once

// What the CUDA kernels share: accesses of 16 bytes, the widest there are on every GPU, and a
// launch.

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace img2gray {

constexpr int kVectorBytes = 16;

// Addresses, with which kernels reason about alignment.
__device__ __forceinline__ uintptr_t address(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

/// How many bytes an address is past the last multiple of 16.
__device__ __forceinline__ unsigned misalignment(const void* pointer) {
  return static_cast<unsigned>(address(pointer) % kVectorBytes);
}

/// Whether all that the two loads below read for the bytes from `begin` up to `end` is in the
/// memory that has the given bounds: the aligned vectors that hold the bytes, and perhaps one more.
__device__ __forceinline__ bool may_load(
    const void* begin, const void* end, const void* memory_begin, const void* memory_end) {
  return address(begin) - misalignment(begin) >= address(memory_begin) &&
         address(end) - misalignment(end) + kVectorBytes <= address(memory_end);
}

/// Reads `kVectors` times 16 bytes from an aligned address.
template <int kVectors>
__device__ __forceinline__ void load_aligned(const void* from, uint32_t* words) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint4 vector = __ldg(static_cast<const uint4*>(from) + i);
    words[4 * i] = vector.x;
    words[4 * i + 1] = vector.y;
    words[4 * i + 2] = vector.z;
    words[4 * i + 3] = vector.w;
  }
}

/// The same from any address: reads the aligned vectors from the one that holds the first byte on,
/// one more than `kVectors`, and shifts the bytes into place.
template <int kVectors>
__device__ __forceinline__ void load_misaligned(const void* from, uint32_t* words) {
  constexpr int kWords = 4 * kVectors;
  const unsigned shift = misalignment(from);
  uint32_t wide[kWords + 4];
  load_aligned<kVectors + 1>(static_cast<const char*>(from) - shift, wide);
#pragma unroll
  for (int i = 0; i < kWords + 2; ++i) {
    wide[i] = shift & 8 ? wide[i + 2] : wide[i];
  }
#pragma unroll
  for (int i = 0; i < kWords + 1; ++i) {
    wide[i] = shift & 4 ? wide[i + 1] : wide[i];
  }
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = __funnelshift_r(wide[i], wide[i + 1], 8 * (shift & 3));
  }
}

/// Writes a chunk of 16 bytes to row `to`, where its first element is number `first`. If not all of
/// it is in the row, element by element, otherwise to an aligned address at once. It is not read
/// again soon, so it need not stay in the cache.
template <typename T>
__device__ __forceinline__ void store(T* to, int64_t first, int64_t columns, const void* chunk) {
  constexpr int kCount = kVectorBytes / sizeof(T);
  if (first >= 0 && first + kCount <= columns) {
    uint4 vector;
    memcpy(&vector, chunk, sizeof(vector));
    __stcs(reinterpret_cast<uint4*>(to + first), vector);
    return;
  }
  T values[kCount];
  memcpy(values, chunk, sizeof(values));
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (first + i >= 0 && first + i < columns) {
      to[first + i] = values[i];
    }
  }
}

/// On the host: whether an address, or a distance of so many `T`, is a multiple of 16 bytes.
inline bool is_aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kVectorBytes == 0;
}
template <typename T>
bool is_aligned(int64_t distance) {
  return distance * int64_t{sizeof(T)} % kVectorBytes == 0;
}

/// What a kernel has to know of the images that it reads and writes. The side with one channel is
/// read or written along with the other, whose channels are `channel` apart.
struct Rows {
  struct Side {
    int64_t image;  // strides, in elements
    int64_t row;
  };
  int64_t rows;
  int64_t columns;
  Side from;
  Side to;
  int64_t channel;
  int64_t column;               // of `from`; that of `to` is 1
  const void* begin = nullptr;  // the memory that `from` is in
  const void* end = nullptr;
};

constexpr unsigned kThreads = 256;

// A grid has a thread for every unit (a pixel, or a chunk of them) of every row of every image, and
// a thread finds its own without a division.
__device__ __forceinline__ unsigned image_of_thread() {
  return blockIdx.z;
}
__device__ __forceinline__ unsigned row_of_thread() {
  return blockIdx.y * blockDim.y + threadIdx.y;
}
__device__ __forceinline__ int64_t unit_of_thread() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

/// Launches `kernel(from, to, rows)` for `units` in each row, in pieces if a grid cannot hold them.
template <typename T>
cudaError_t launch(
    void (*kernel)(const T*, T*, Rows),
    const T* from,
    T* to,
    Rows rows,
    int64_t images,
    int64_t units,
    cudaStream_t stream) {
  if (rows.rows == 1) {  // then the images are the rows
    rows.rows = images;
    rows.from.row = rows.from.image;
    rows.to.row = rows.to.image;
    images = 1;
  }
  unsigned width = 1;
  while (width < kThreads && width < units) {
    width *= 2;
  }
  const dim3 threads(width, kThreads / width);
  const int64_t blocks_x = (units + width - 1) / width;
  if (blocks_x > INT32_MAX) {
    return cudaErrorInvalidConfiguration;
  }

  constexpr int64_t kMaxBlocks = 65535;  // in y and in z
  const int64_t all_rows = rows.rows;
  const int64_t most_rows = kMaxBlocks * threads.y;
  for (int64_t image = 0; image < images; image += kMaxBlocks) {
    for (int64_t row = 0; row < all_rows; row += most_rows) {
      rows.rows = std::min(all_rows - row, most_rows);
      const dim3 blocks(
          static_cast<unsigned>(blocks_x),
          static_cast<unsigned>((rows.rows + threads.y - 1) / threads.y),
          static_cast<unsigned>(std::min(images - image, kMaxBlocks)));
      kernel<<<blocks, threads, 0, stream>>>(
          from + image * rows.from.image + row * rows.from.row,
          to + image * rows.to.image + row * rows.to.row,
          rows);
      const cudaError_t error = cudaGetLastError();
      if (error != cudaSuccess) {
        return error;
      }
    }
  }
  return cudaSuccess;
}

}  // namespace img2gray
