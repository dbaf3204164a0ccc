#include "twice.h"

namespace {

__device__ int calls;

__global__ void twice_kernel(const float* in, float* out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i == 0) atomicAdd(&calls, 1);
  if (i < n) out[i] = 2 * in[i];
}

}  // namespace

cudaError_t twice_cuda(const float* in, float* out, int64_t n, cudaStream_t stream) {
  if (n > 0) twice_kernel<<<(n + 255) / 256, 256, 0, stream>>>(in, out, n);
  return cudaGetLastError();
}
