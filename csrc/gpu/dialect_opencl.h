#pragma once

// The dialect (gpu/dialect.h) in C++ for OpenCL 2021. Compile with -ffp-contract=off and without
// fast math. What holds of fused multiply-adds, rounding and warps is what OpenCL promises of
// devices of the full profile; opencl/probe.h asks a device itself.

#pragma OPENCL FP_CONTRACT OFF

typedef uchar uint8_t;
typedef char int8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;

#define GLOBAL __global
#define GROUP __local
#define PRIVATE __private
#define CONSTANT __constant const
#define INLINE static inline
#define INLINE_MEMBER inline
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("nounroll")
#define SHARED(type, name, count) __local type name[count] __attribute__((aligned(16)))
#define READ(index, type, name) __global const type* name
#define WRITE(index, type, name) __global type* name
// A kernel takes no references, so that `args` is a copy.
#define KERNEL(name, Args, ...) \
  __attribute__((intel_reqd_sub_group_size(32))) __kernel void name(const Args args, __VA_ARGS__)
#define ARGS(type) const __private type&
#define THREAD uint32_t(get_local_id(0))
#define BLOCK_X uint32_t(get_group_id(0))
#define BLOCK_Y uint32_t(get_group_id(1))
#define BLOCK_Z uint32_t(get_group_id(2))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

#define shuffle_down(value, by) sub_group_shuffle_down(value, uint(by))
#define shuffle_from(value, lane) sub_group_shuffle(value, uint(lane))

INLINE float bits_to_float(uint32_t bits) { return as_float(bits); }
INLINE uint32_t float_to_bits(float v) { return as_uint(v); }
// Without the type half, which a device may lack.
INLINE float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, magnitude = h & 0x7FFFu;
  if (magnitude >= 0x7C00u) return as_float(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  if (magnitude >= 0x0400u) return as_float(sign | ((magnitude << 13) + 0x38000000u));
  return as_float(sign | as_uint(float(magnitude) * 5.9604644775390625e-8f));  // 2^-24
}
INLINE float bf16_to_float(uint16_t h) { return as_float(uint(h) << 16); }
INLINE float round_even(float v) { return rint(v); }
INLINE float fused(float a, float b, float c) { return fma(a, b, c); }

// OpenCL promises these within 2.5 and 3 units, and rounded only where a device says so.
INLINE float near_quotient(float a, float b) { return a / b; }
INLINE float near_root(float v) { return sqrt(v); }
#include "gpu/rounded.h"

// c and the products of four pairs of int8.
INLINE int32_t dot4(uint32_t a, uint32_t b, int32_t c) {
  const char4 x = as_char4(a), y = as_char4(b);
  return c + int(x.x) * y.x + int(x.y) * y.y + int(x.z) * y.z + int(x.w) * y.w;
}
