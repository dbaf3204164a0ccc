// Runs img2gray's CUDA kernels on random layouts in memory that ends where the
// images do, and compares every pixel with the formula. The address sanitizer
// judges the accesses.

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "img2gray_backward.h"

using namespace img2gray;

namespace {

std::mt19937 generator(1);
long pixels = 0;
long wrong = 0;

int between(int low, int high) {
  return low + static_cast<int>(generator() % (high - low + 1));
}
bool chance(int of) { return between(1, of) == 1; }

/// `count` random values, at the end of a block of memory that begins `offset`
/// values before them.
template <typename T> struct Memory {
  T *block;
  T *values;

  Memory(int64_t offset, int64_t count)
      : block(static_cast<T *>(std::malloc((offset + count) * sizeof(T)))),
        values(block + offset) {
    for (int64_t i = 0; i < offset + count; ++i) {
      block[i] = sizeof(T) == 1
                     ? T(generator())
                     : T(static_cast<float>(generator() % 10000) / 10000);
    }
  }
  ~Memory() { std::free(block); }
};

Layout random_layout() {
  Layout layout;
  layout.images = between(1, 3);
  layout.rows = between(1, 4);
  layout.columns = chance(3) ? between(1, 70) : 16 * between(1, 4);
  const int padding = chance(2)   ? 0
                      : chance(2) ? between(0, 20)
                                  : 16 * between(0, 2);
  const int kind = between(0, 3);
  if (kind <= 1) { // planar
    layout.column_stride = 1;
    layout.row_stride = layout.columns + padding;
    layout.channel_stride =
        layout.rows * layout.row_stride + (chance(3) ? between(0, 20) : 0);
    layout.image_stride = 3 * layout.channel_stride;
  } else if (kind == 2) { // interleaved
    layout.column_stride = 3;
    layout.channel_stride = 1;
    layout.row_stride = 3 * layout.columns + padding;
    layout.image_stride = layout.rows * layout.row_stride;
  } else {
    layout.column_stride = between(0, 5);
    layout.row_stride = between(0, 50);
    layout.channel_stride = between(0, 50);
    layout.image_stride = between(0, 200);
  }
  if (chance(10))
    layout.image_stride = 0;
  if (chance(10))
    layout.row_stride = 0;
  if (chance(10) && kind != 2)
    layout.channel_stride = 0;
  return layout;
}

template <typename T> void compare(T result, T expected) {
  ++pixels;
  wrong += std::memcmp(&result, &expected, sizeof(T)) != 0;
}

template <typename T> void check() {
  const Layout layout = random_layout();
  const int64_t offset = chance(2) ? 0 : between(0, 16);
  const Memory<T> image(offset, layout.span() + 2 * layout.channel_stride);
  const Memory<T> gray(chance(4) ? between(0, 16) : 0, layout.pixels());
  wrong += cuda::img2gray<T>(image.values, gray.values, layout, nullptr) !=
           cudaSuccess;

  const Memory<T> grad(offset, layout.span());
  const Memory<T> image_grad(chance(4) ? between(0, 16) : 0,
                             3 * layout.pixels());
  if constexpr (sizeof(T) > 1) {
    wrong += cuda::img2gray_backward<T>(grad.values, image_grad.values, layout,
                                        nullptr) != cudaSuccess;
  }

  const int64_t plane = layout.rows * layout.columns;
  for (int64_t i = 0; i < layout.pixels(); ++i) {
    const int64_t row = i % plane / layout.columns;
    const int64_t at = i / plane * layout.image_stride +
                       row * layout.row_stride +
                       i % layout.columns * layout.column_stride;
    const T *pixel = image.values + at;
    compare(gray.values[i], luma(pixel[0], pixel[layout.channel_stride],
                                 pixel[2 * layout.channel_stride]));
    if constexpr (sizeof(T) > 1) {
      for (int c = 0; c < 3; ++c) {
        const int64_t to = (i / plane * 3 + c) * plane + i % plane;
        compare(image_grad.values[to], share(c, grad.values[at]));
      }
    }
  }
}

} // namespace

int main() {
  for (int i = 0; i < 1500; ++i) {
    check<uint8_t>();
    check<Half>();
    check<BFloat16>();
    check<float>();
    check<double>();
  }
  std::printf("%ld values, %ld wrong\n", pixels, wrong);
  return wrong != 0;
}
