#pragma once

// Accesses of 16 bytes, the widest there are on every GPU.

#include <cstdint>

namespace img2gray {

constexpr int kVectorBytes = 16;

/// How many bytes an address is past the last multiple of 16.
__device__ __forceinline__ unsigned misalignment(const void* address) {
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(address) % kVectorBytes);
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

/// The same from an address that is not: reads the aligned vectors that hold the bytes, and shifts
/// them into place. Up to 15 bytes before and after the bytes have to be readable, too.
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

/// Writes 16 bytes to an aligned address. They are not read again soon, so they need not be cached.
__device__ __forceinline__ void store(void* to, const void* values) {
  uint4 vector;
  memcpy(&vector, values, sizeof(vector));
  __stcs(static_cast<uint4*>(to), vector);
}

/// Threads for rows of `units` each, and where a thread finds its unit.
struct Grid {
  static constexpr unsigned kThreads = 256;

  dim3 threads;        // units of a row, rows
  unsigned tiles = 0;  // blocks that a row takes
  int64_t blocks = 0;

  Grid(int64_t rows, int64_t units) {
    unsigned width = 1;
    while (width < kThreads && width < units) {
      width *= 2;
    }
    threads = dim3(width, kThreads / width);
    tiles = static_cast<unsigned>((units + width - 1) / width);
    blocks = tiles * ((rows + threads.y - 1) / threads.y);
  }
};

__device__ __forceinline__ int64_t row_of_thread(unsigned tiles) {
  return int64_t{blockIdx.x / tiles} * blockDim.y + threadIdx.y;
}

__device__ __forceinline__ int64_t unit_of_thread(unsigned tiles) {
  return int64_t{blockIdx.x % tiles} * blockDim.x + threadIdx.x;
}

}  // namespace img2gray
