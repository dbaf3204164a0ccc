#include "img2gray_backward.h"

#include <algorithm>

#include "cpu.h"
#include "scalar.h"

namespace {

using img2gray::BFloat16;
using img2gray::Half;
using img2gray::share;
using img2gray::cpu::kBlock;

template <typename T>
FOR_EVERY_LEVEL void spread(
    const T* __restrict grad,
    T* __restrict red,
    T* __restrict green,
    T* __restrict blue,
    int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    red[i] = share(0, grad[i]);
    green[i] = share(1, grad[i]);
    blue[i] = share(2, grad[i]);
  }
}

/// `channel` is the distance of the three results of a pixel.
template <typename T>
void spread_row(const T* grad, T* image_grad, int64_t channel, int64_t count) {
  if constexpr (sizeof(T) == 2) {
    float wide[kBlock];
    float shares[3][kBlock];
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t n = std::min(kBlock, count - begin);
      img2gray::cpu::widen(grad + begin, wide, n);
      spread(wide, shares[0], shares[1], shares[2], n);
      for (int c = 0; c < 3; ++c) {
        img2gray::cpu::narrow(shares[c], image_grad + c * channel + begin, n);
      }
    }
  } else {
    spread(grad, image_grad, image_grad + channel, image_grad + 2 * channel, count);
  }
}

}  // namespace

template <typename T>
void img2gray::cpu::img2gray_backward(
    const T* grad, T* image_grad, const Layout& layout, int64_t begin, int64_t end) {
  const int64_t image_pixels = layout.rows * layout.columns;
  while (begin < end) {
    const int64_t row = begin / layout.columns;
    const int64_t column = begin - row * layout.columns;
    int64_t count = std::min(layout.columns - column, end - begin);

    const T* from = grad + offset_of_row(layout, row) + column * layout.column_stride;
    T dense[kBlock];
    if (layout.column_stride != 1) {
      count = std::min(count, kBlock);
      for (int64_t i = 0; i < count; ++i) {
        dense[i] = from[i * layout.column_stride];
      }
      from = dense;
    }

    const int64_t image = begin / image_pixels;
    spread_row(from, image_grad + begin + 2 * image * image_pixels, image_pixels, count);
    begin += count;
  }
}

namespace img2gray::cpu {

template void img2gray_backward(const Half*, Half*, const Layout&, int64_t, int64_t);
template void img2gray_backward(const BFloat16*, BFloat16*, const Layout&, int64_t, int64_t);
template void img2gray_backward(const float*, float*, const Layout&, int64_t, int64_t);
template void img2gray_backward(const double*, double*, const Layout&, int64_t, int64_t);

}  // namespace img2gray::cpu
