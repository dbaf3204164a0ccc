#pragma once

// Enough of CUDA to run img2gray's kernels on the host, one thread after
// another, so that the address sanitizer sees their every access.
// test_img2gray.py puts this in the place of the real header.

#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(threads)

using cudaError_t = int;
using cudaStream_t = void *;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorInvalidConfiguration = 9;
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline dim3 gridDim, blockDim, blockIdx, threadIdx;

template <typename Kernel, typename... Arguments>
void launch_on_host(Kernel kernel, dim3 blocks, dim3 threads,
                    Arguments... arguments) {
  gridDim = blocks;
  blockDim = threads;
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        for (unsigned ty = 0; ty < threads.y; ++ty) {
          for (unsigned tx = 0; tx < threads.x; ++tx) {
            blockIdx = dim3(x, y, z);
            threadIdx = dim3(tx, ty, 0);
            kernel(arguments...);
          }
        }
      }
    }
  }
}

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline uint4 __ldg(const uint4 *from) { return *from; }
inline void __stcs(uint4 *to, uint4 value) { *to = value; }

inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, unsigned shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (shift & 31));
}

inline uint32_t byte_of(uint32_t word, unsigned i) {
  return word >> 8 * i & 255;
}

inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned from = selector >> 4 * i & 7;
    result |= (from < 4 ? byte_of(low, from) : byte_of(high, from - 4))
              << 8 * i;
  }
  return result;
}

inline uint32_t __dp2a_lo(uint32_t pair, uint32_t bytes, uint32_t sum) {
  return sum + (pair & 0xffff) * byte_of(bytes, 0) +
         (pair >> 16) * byte_of(bytes, 1);
}
inline uint32_t __dp2a_hi(uint32_t pair, uint32_t bytes, uint32_t sum) {
  return __dp2a_lo(pair, bytes >> 16, sum);
}
