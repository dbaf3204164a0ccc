#include "torch_binding.h"

#include <ATen/ops/empty.h>

#ifdef CUDA_KERNEL
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "../csrc/img2gray_backward.h"
#include "images.h"
#include "operator.h"

namespace {

at::Tensor empty_image(const at::Tensor& grad) {
  TORCH_CHECK_TYPE(
      grad.is_floating_point(),
      "img2gray_backward: grad has dtype ",
      c10::toString(grad.scalar_type()),
      ", and must have a floating-point one");
  img2gray::check_shape("img2gray_backward: grad", grad, 1);
  std::vector<int64_t> shape = grad.sizes().vec();
  shape[shape.size() - 3] = 3;
  return at::empty(shape, grad.options());
}

}  // namespace

at::Tensor img2gray::img2gray_backward_cpu(const at::Tensor& grad) {
  at::Tensor image_grad = empty_image(grad);
  prefer_huge_pages(image_grad);
  const at::Tensor source = evenly_spaced(grad);
  const Layout layout = layout_of(source);
  dispatch_dtype("img2gray_backward: grad", source, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_integral_v<T>) {
      const T* from = const_data<T>(source);
      T* to = mutable_data<T>(image_grad);
      parallel_for_pixels(layout.pixels(), [&](int64_t begin, int64_t end) {
        cpu::img2gray_backward(from, to, layout, begin, end);
      });
    }
  });
  return image_grad;
}

#ifdef CUDA_KERNEL
at::Tensor img2gray::img2gray_backward_cuda(const at::Tensor& grad) {
  const c10::cuda::CUDAGuard guard(grad.device());
  at::Tensor image_grad = empty_image(grad);
  const at::Tensor source = evenly_spaced(grad);
  dispatch_dtype("img2gray_backward: grad", source, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_integral_v<T>) {
      C10_CUDA_CHECK(
          cuda::img2gray_backward(
              const_data<T>(source),
              mutable_data<T>(image_grad),
              layout_of(source),
              c10::cuda::getCurrentCUDAStream()));
    }
  });
  return image_grad;
}
#endif
