// Products and sums are not to be fused (img2gray.h says why). This has to precede the functions.
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "img2gray.h"

#include <algorithm>
#include <type_traits>

#include "cpu.h"
#include "scalar.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace {

using img2gray::BFloat16;
using img2gray::Half;
using img2gray::cpu::kBlock;

// --- Loops over pixels -------------------------------------------------------------------------

/// What the loops compute: the luma of their type, or what is luma before it is rounded to 16 bits.
struct Luma {
  template <typename T>
  T operator()(T red, T green, T blue) const {
    return img2gray::luma(red, green, blue);
  }
};
struct UnroundedLuma {
  float operator()(float red, float green, float blue) const {
    return img2gray::weighted_sum(red, green, blue);
  }
};

template <typename Formula, typename T>
FOR_EVERY_LEVEL void planar(
    const T* __restrict red,
    const T* __restrict green,
    const T* __restrict blue,
    T* __restrict gray,
    int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    gray[i] = Formula()(red[i], green[i], blue[i]);
  }
}

template <typename Formula, typename T>
FOR_EVERY_LEVEL void interleaved(const T* __restrict image, T* __restrict gray, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    gray[i] = Formula()(image[3 * i], image[3 * i + 1], image[3 * i + 2]);
  }
}

template <typename T>
void strided(const T* image, int64_t channel, int64_t column, T* gray, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const T* pixel = image + i * column;
    gray[i] = Luma()(pixel[0], pixel[channel], pixel[2 * channel]);
  }
}

// --- Interleaved bytes -------------------------------------------------------------------------

#ifdef __x86_64__

// Compilers find no good way to take triples of bytes apart. A byte shuffle does it and widens in
// one go; then one instruction multiplies pairs of 16-bit numbers and adds the two products.
// Green's weight, too large for a signed one, is halved and counted in both pairs.

// Where the bytes of four pairs come from; -1 makes a zero.
alignas(16) constexpr int8_t kRedGreen[] = {
    0, -1, 1, -1, 3, -1, 4, -1, 6, -1, 7, -1, 9, -1, 10, -1};
alignas(16) constexpr int8_t kBlueGreen[] = {
    2, -1, 1, -1, 5, -1, 4, -1, 8, -1, 7, -1, 11, -1, 10, -1};

/// Shuffles both halves of `rgb` alike.
__attribute__((target("avx2"))) inline __m256i shuffle(__m256i rgb, const int8_t* order) {
  const __m128i half = _mm_load_si128(reinterpret_cast<const __m128i*>(order));
  return _mm256_shuffle_epi8(rgb, _mm256_broadcastsi128_si256(half));
}

/// Luma of the 8 pixels in the first 12 bytes of each half of `rgb`, as 32-bit numbers.
__attribute__((target("avx2"))) inline __m256i luma_of_8(__m256i rgb) {
  const __m256i a =
      _mm256_madd_epi16(shuffle(rgb, kRedGreen), _mm256_set1_epi32(38470 / 2 << 16 | 19595));
  const __m256i b =
      _mm256_madd_epi16(shuffle(rgb, kBlueGreen), _mm256_set1_epi32(38470 / 2 << 16 | 7471));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_set1_epi32(32768));
  return _mm256_srli_epi32(sum, 16);
}

/// Two times 16 bytes, 12 bytes apart.
__attribute__((target("avx2"))) inline __m256i load_24(const uint8_t* from) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 12));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

__attribute__((target("avx2"))) void interleaved_avx2(
    const uint8_t* image, uint8_t* gray, int64_t count) {
  const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  int64_t i = 0;
  for (; i + 34 <= count; i += 32) {  // the last load reads 4 bytes past its 8 pixels
    const uint8_t* rgb = image + 3 * i;
    const __m256i a = luma_of_8(load_24(rgb));
    const __m256i b = luma_of_8(load_24(rgb + 24));
    const __m256i c = luma_of_8(load_24(rgb + 48));
    const __m256i d = luma_of_8(load_24(rgb + 72));
    const __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(gray + i), _mm256_permutevar8x32_epi32(bytes, in_order));
  }
  interleaved<Luma>(image + 3 * i, gray + i, count - i);
}

#endif

/// Chooses the loop for the row of an image.
template <typename T>
void convert_row(const T* image, int64_t channel, int64_t column, T* gray, int64_t count) {
  if (column == 1) {
    planar<Luma>(image, image + channel, image + 2 * channel, gray, count);
  } else if (column == 3 && channel == 1) {
#ifdef __x86_64__
    if constexpr (sizeof(T) == 1) {
      if (__builtin_cpu_supports("avx2")) {
        return interleaved_avx2(image, gray, count);
      }
    }
#endif
    interleaved<Luma>(image, gray, count);
  } else {
    strided(image, channel, column, gray, count);
  }
}

// --- 16-bit floats -----------------------------------------------------------------------------

template <typename T>
FOR_EVERY_LEVEL void widen_loop(const T* __restrict from, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = from[i];
  }
}

template <typename T>
FOR_EVERY_LEVEL void narrow_loop(const float* __restrict from, T* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = T(from[i]);
  }
}

#ifdef __x86_64__

__attribute__((target("avx2,f16c"))) void widen_f16c(const Half* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  widen_loop(from + i, to + i, count - i);
}

__attribute__((target("avx2,f16c"))) void narrow_f16c(const float* from, Half* to, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 floats = _mm256_loadu_ps(from + i);
    const __m128i halves = _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  narrow_loop(from + i, to + i, count - i);
}

#endif

/// Half and BFloat16: as above, a block at a time through float.
template <typename T>
void convert_16_bit_row(const T* image, int64_t channel, int64_t column, T* gray, int64_t count) {
  namespace cpu = img2gray::cpu;
  alignas(64) float wide[3 * kBlock];
  alignas(64) float result[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const T* block = image + begin * column;
    const int64_t n = std::min(kBlock, count - begin);
    if (column == 1) {
      for (int64_t c = 0; c < 3; ++c) {
        cpu::widen(block + c * channel, wide + c * kBlock, n);
      }
      planar<UnroundedLuma>(wide, wide + kBlock, wide + 2 * kBlock, result, n);
      cpu::narrow(result, gray + begin, n);
    } else if (column == 3 && channel == 1) {
      cpu::widen(block, wide, 3 * n);
      interleaved<UnroundedLuma>(wide, result, n);
      cpu::narrow(result, gray + begin, n);
    } else {
      strided(block, channel, column, gray + begin, n);
    }
  }
}

}  // namespace

template <typename T>
void img2gray::cpu::widen(const T* from, float* to, int64_t count) {
#ifdef __x86_64__
  if constexpr (std::is_same_v<T, Half>) {
    if (__builtin_cpu_supports("avx2")) {  // and so F16C, which is older
      return widen_f16c(from, to, count);
    }
  }
#endif
  widen_loop(from, to, count);
}

template <typename T>
void img2gray::cpu::narrow(const float* from, T* to, int64_t count) {
#ifdef __x86_64__
  if constexpr (std::is_same_v<T, Half>) {
    if (__builtin_cpu_supports("avx2")) {  // and so F16C, which is older
      return narrow_f16c(from, to, count);
    }
  }
#endif
  narrow_loop(from, to, count);
}

template <typename T>
void img2gray::cpu::img2gray(
    const T* image, T* gray, const Layout& layout, int64_t begin, int64_t end) {
  while (begin < end) {
    const int64_t row = begin / layout.columns;
    const int64_t column = begin - row * layout.columns;
    const int64_t count = std::min(layout.columns - column, end - begin);
    const T* first = image + offset_of_row(layout, row) + column * layout.column_stride;
    if constexpr (sizeof(T) == 2) {
      convert_16_bit_row(first, layout.channel_stride, layout.column_stride, gray + begin, count);
    } else {
      convert_row(first, layout.channel_stride, layout.column_stride, gray + begin, count);
    }
    begin += count;
  }
}

namespace img2gray::cpu {

template void widen(const Half*, float*, int64_t);
template void widen(const BFloat16*, float*, int64_t);
template void narrow(const float*, Half*, int64_t);
template void narrow(const float*, BFloat16*, int64_t);

template void img2gray(const uint8_t*, uint8_t*, const Layout&, int64_t, int64_t);
template void img2gray(const Half*, Half*, const Layout&, int64_t, int64_t);
template void img2gray(const BFloat16*, BFloat16*, const Layout&, int64_t, int64_t);
template void img2gray(const float*, float*, const Layout&, int64_t, int64_t);
template void img2gray(const double*, double*, const Layout&, int64_t, int64_t);

}  // namespace img2gray::cpu
