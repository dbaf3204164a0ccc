#pragma once

// The two 16-bit floating-point types of PyTorch, for code that includes no torch header. They have
// the layout of c10::Half and c10::BFloat16, so a pointer to one can be passed as one to the other.
//
// Reading one as a float is exact and implicit, so arithmetic on them happens in float. Making one
// from a float rounds to nearest, ties to even, and is always written out: `T(sum)`. NaN stays NaN.

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define SCALAR_FUNCTION __host__ __device__ __forceinline__
#else
#define SCALAR_FUNCTION inline
#endif

namespace img2gray {

namespace scalar {

inline uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// `condition ? yes : no` without a branch, and without leave to skip computing either one.
inline uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  return no ^ ((yes ^ no) & -uint32_t(condition));
}

// The host conversions choose between finished values, so that compilers turn loops over them into
// vector code for every processor. None touches a float subnormal, which is slow on some and zero
// with denormals off.

inline float half_to_float(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t sign = uint32_t(half & 0x8000u) << 16;
  // Exponents of half and float differ by 112. Adding 224 sends half's infinity and NaN to float's;
  // the multiplication takes the other 112 back and leaves both of them alone.
  const float normal = float_from_bits((magnitude << 13) + (224u << 23)) * 0x1p-112f;
  // A subnormal counts units of 2^-24, which is the last place of a float in [0.5, 1).
  const float subnormal = float_from_bits(magnitude + 0x3f000000u) - 0.5f;
  const bool is_subnormal = (half & 0x7c00u) == 0;
  return float_from_bits(select(is_subnormal, float_bits(subnormal), float_bits(normal)) | sign);
}

inline uint16_t half_from_float(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const float absolute = float_from_bits(magnitude);
  const uint32_t normal = (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  // The addition rounds to units of 2^-24, as above.
  const uint32_t subnormal = float_bits(absolute + 0.5f) - 0x3f000000u;
  uint32_t half = select(absolute < 0x1p-14f, subnormal, normal);
  half = select(absolute < 0x1p16f, half, 0x7c00u);  // infinity, and for now NaN
  half = select(value == value, half, 0x7e00u);
  return uint16_t(half | (bits >> 16 & 0x8000u));
}

inline float bfloat16_to_float(uint16_t bfloat16) {
  return float_from_bits(uint32_t(bfloat16) << 16);
}

inline uint16_t bfloat16_from_float(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  const uint32_t quiet_nan = bits | 0x00400000u;
  return uint16_t(select(value == value, rounded, quiet_nan) >> 16);
}

}  // namespace scalar

/// IEEE 754 binary16.
struct Half {
  uint16_t bits;

  Half() = default;

  SCALAR_FUNCTION explicit Half(float value) {
#ifdef __CUDA_ARCH__
    bits = __half_as_ushort(__float2half_rn(value));
#else
    bits = scalar::half_from_float(value);
#endif
  }

  SCALAR_FUNCTION operator float() const {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(bits));
#else
    return scalar::half_to_float(bits);
#endif
  }
};

/// The upper half of an IEEE 754 binary32.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;

  SCALAR_FUNCTION explicit BFloat16(float value) {
#ifdef __CUDA_ARCH__
    bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    bits = scalar::bfloat16_from_float(value);
#endif
  }

  SCALAR_FUNCTION operator float() const {
#ifdef __CUDA_ARCH__
    return __bfloat162float(__ushort_as_bfloat16(bits));
#else
    return scalar::bfloat16_to_float(bits);
#endif
  }
};

static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2, "both are two bytes, as in PyTorch");

}  // namespace img2gray

#undef SCALAR_FUNCTION
