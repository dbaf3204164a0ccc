#pragma once

// Managed by kernelgen, from the schemas in .copier-answers.yml. torch-ext/<operator>.cpp defines
// these by their qualified names, so that a definition with another signature does not compile.

#include <ATen/core/Tensor.h>

namespace img2gray {

at::Tensor img2gray_cpu(const at::Tensor& image);
at::Tensor img2gray_backward_cpu(const at::Tensor& grad);

#ifdef CUDA_KERNEL
at::Tensor img2gray_cuda(const at::Tensor& image);
at::Tensor img2gray_backward_cuda(const at::Tensor& grad);
#endif

}  // namespace img2gray
