#include "torch_binding.h"

#include <ATen/ops/empty.h>

#ifdef CUDA_KERNEL
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "../csrc/img2gray.h"
#include "images.h"
#include "operator.h"

namespace {

at::Tensor empty_gray(const at::Tensor& image) {
  img2gray::check_shape("img2gray: image", image, 3);
  std::vector<int64_t> shape = image.sizes().vec();
  shape[shape.size() - 3] = 1;
  return at::empty(shape, image.options());
}

}  // namespace

at::Tensor img2gray::img2gray_cpu(const at::Tensor& image) {
  at::Tensor gray = empty_gray(image);
  prefer_huge_pages(gray);
  const at::Tensor source = evenly_spaced(image);
  const Layout layout = layout_of(source);
  dispatch_dtype("img2gray: image", source, [&](auto zero) {
    using T = decltype(zero);
    const T* from = const_data<T>(source);
    T* to = mutable_data<T>(gray);
    parallel_for_pixels(layout.pixels(), [&](int64_t begin, int64_t end) {
      cpu::img2gray(from, to, layout, begin, end);
    });
  });
  return gray;
}

#ifdef CUDA_KERNEL
at::Tensor img2gray::img2gray_cuda(const at::Tensor& image) {
  const c10::cuda::CUDAGuard guard(image.device());
  at::Tensor gray = empty_gray(image);
  const at::Tensor source = evenly_spaced(image);
  dispatch_dtype("img2gray: image", source, [&](auto zero) {
    using T = decltype(zero);
    C10_CUDA_CHECK(
        cuda::img2gray(
            const_data<T>(source),
            mutable_data<T>(gray),
            layout_of(source),
            c10::cuda::getCurrentCUDAStream()));
  });
  return gray;
}
#endif
