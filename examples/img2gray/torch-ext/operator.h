#pragma once

// Managed by kernelgen: what every operator of this project needs from torch.

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "../csrc/scalar.h"

namespace img2gray {

/// The elements of `tensor`, to read. Their type is not checked: call this under `dispatch_dtype`.
template <typename T>
const T* const_data(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

/// The elements of `tensor`, to write.
template <typename T>
T* mutable_data(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

/// Calls `function` with a zero of the type of `tensor`'s elements. Errors call the tensor `name`.
template <typename Function>
void dispatch_dtype(const char* name, const at::Tensor& tensor, Function function) {
  switch (tensor.scalar_type()) {
    case at::ScalarType::Half:
      return function(Half{});
    case at::ScalarType::BFloat16:
      return function(BFloat16{});
    case at::ScalarType::Float:
      return function(float{});
    case at::ScalarType::Double:
      return function(double{});
    case at::ScalarType::Byte:
      return function(uint8_t{});
    default:
      TORCH_CHECK_TYPE(
          false,
          name,
          " has dtype ",
          c10::toString(tensor.scalar_type()),
          ", and this kernel takes float16, bfloat16, float32, float64, uint8");
  }
}

}  // namespace img2gray
