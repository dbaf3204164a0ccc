// Managed by kernelgen, from the schemas in .copier-answers.yml.

#include "torch_binding.h"

#include <torch/library.h>

#include "registration.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("img2gray(Tensor image) -> Tensor");
  ops.def("img2gray_backward(Tensor grad) -> Tensor");
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("img2gray", &img2gray::img2gray_cpu);
  ops.impl("img2gray_backward", &img2gray::img2gray_backward_cpu);
}

#ifdef CUDA_KERNEL
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("img2gray", &img2gray::img2gray_cuda);
  ops.impl("img2gray_backward", &img2gray::img2gray_backward_cuda);
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
