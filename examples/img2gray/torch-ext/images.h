#pragma once

// What both operators need to know about a tensor of images.

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/csrc/stable/c/shim.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "../csrc/img2gray.h"

namespace img2gray {

/// Refuses `tensor` unless it is [..., channels, height, width].
inline void check_shape(const char* name, const at::Tensor& tensor, int64_t channels) {
  TORCH_CHECK_VALUE(
      tensor.dim() >= 3 && tensor.size(-3) == channels,
      name,
      " has shape ",
      tensor.sizes(),
      ", and must have shape [..., ",
      channels,
      ", height, width]");
}

/// How many images the leading dimensions of `tensor` make, and how far apart they are. False if
/// they are not evenly spaced, as after a transposition of two of the dimensions.
inline bool count_images(const at::Tensor& tensor, int64_t& images, int64_t& stride) {
  images = 1;
  stride = 0;
  for (int64_t d = tensor.dim() - 4; d >= 0; --d) {
    if (tensor.size(d) == 1) {
      continue;
    }
    if (images == 1) {
      stride = tensor.stride(d);
    } else if (tensor.stride(d) != images * stride) {
      return false;
    }
    images *= tensor.size(d);
  }
  return true;
}

/// `tensor`, or a dense copy of it if its images are not evenly spaced.
inline at::Tensor evenly_spaced(const at::Tensor& tensor) {
  int64_t images = 0;
  int64_t stride = 0;
  return count_images(tensor, images, stride) ? tensor : tensor.contiguous();
}

/// The layout of evenly spaced images. Rows that follow each other in memory become one row.
inline Layout layout_of(const at::Tensor& tensor) {
  Layout layout{};
  count_images(tensor, layout.images, layout.image_stride);
  layout.channel_stride = tensor.stride(-3);
  layout.rows = tensor.size(-2);
  layout.row_stride = tensor.stride(-2);
  layout.columns = tensor.size(-1);
  layout.column_stride = tensor.stride(-1);
  if (layout.columns == 1) {
    layout.columns = layout.rows;
    layout.column_stride = layout.row_stride;
    layout.rows = 1;
  } else if (layout.rows == 1 || layout.row_stride == layout.columns * layout.column_stride) {
    layout.columns *= layout.rows;
    layout.rows = 1;
  }
  return layout;
}

/// Asks for huge pages for a large tensor on the CPU that is about to be written for the first
/// time. With small ones, the page faults can take longer than the kernel. (NumPy does this for its
/// arrays, PyTorch for its tensors only if THP_MEM_ALLOC_ENABLE is set.)
inline void prefer_huge_pages([[maybe_unused]] const at::Tensor& tensor) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kPage = 4096;
  constexpr size_t kLarge = size_t{4} << 20;
  if (tensor.nbytes() >= kLarge) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    const uintptr_t aligned = (begin + kPage - 1) / kPage * kPage;
    // A refusal does no harm, so the result does not matter.
    (void)madvise(
        reinterpret_cast<void*>(aligned), begin + tensor.nbytes() - aligned, MADV_HUGEPAGE);
  }
#endif
}

/// Calls `function(begin, end)` for ranges that cover `pixels`, on PyTorch's threads.
///
/// at::parallel_for is a header that runs on one thread unless its user compiles with OpenMP; this
/// is the same function inside of libtorch.
template <typename Function>
void parallel_for_pixels(int64_t pixels, Function function) {
  constexpr int64_t kGrain = 32768;
  const auto call = [](int64_t begin, int64_t end, void* context) {
    (*static_cast<Function*>(context))(begin, end);
  };
  TORCH_CHECK(torch_parallel_for(0, pixels, kGrain, call, &function) == 0);
}

}  // namespace img2gray
