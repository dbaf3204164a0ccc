#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "registration.h"

#include "../csrc/twice.h"

using torch::stable::Tensor;

// Mutates `out`; both are contiguous float32 of one size.
void twice(Tensor& out, const Tensor& x) {
  STD_TORCH_CHECK(x.is_contiguous() && out.numel() == x.numel(), "twice: sizes differ");
  twice_cpu(static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()), x.numel());
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("twice(Tensor! out, Tensor x) -> ()"); }

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) { m.impl("twice", TORCH_BOX(&twice)); }

#ifdef CUDA_KERNEL
void twice_on_gpu(Tensor& out, const Tensor& x) {
  const auto status = twice_cuda(static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()),
                                 x.numel(), nullptr);
  STD_TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status));
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m) { m.impl("twice", TORCH_BOX(&twice_on_gpu)); }
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
