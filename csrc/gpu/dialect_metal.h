#pragma once

// The dialect (gpu/dialect.h) in Metal Shading Language 3. Compile with mathMode safe and precise
// functions.

#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

typedef uchar uint8_t;
typedef char int8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;

#define GLOBAL device
#define GROUP threadgroup
#define PRIVATE thread
#define CONSTANT constant
#define INLINE static inline
#define INLINE_MEMBER inline
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("nounroll")
#ifndef SHARED_STORAGE  // of other compilers, which read this for tests
#define SHARED_STORAGE
#endif
#define SHARED(type, name, count) alignas(16) SHARED_STORAGE threadgroup type name[count]
#define READ(index, type, name) device const type* name [[buffer(index)]]
#define WRITE(index, type, name) device type* name [[buffer(index)]]
#define KERNEL(name, Args, ...)                                      \
  kernel void name(constant Args& args [[buffer(0)]], __VA_ARGS__,   \
                   uint3 oxi_block [[threadgroup_position_in_grid]], \
                   uint3 oxi_thread [[thread_position_in_threadgroup]])
#define ARGS(type) constant type&
#define THREAD oxi_thread.x
#define BLOCK_X oxi_block.x
#define BLOCK_Y oxi_block.y
#define BLOCK_Z oxi_block.z
#define BARRIER() threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)

#define shuffle_down(value, by) simd_shuffle_down(value, ushort(by))
#define shuffle_from(value, lane) simd_shuffle(value, ushort(lane))

INLINE float bits_to_float(uint32_t bits) { return as_type<float>(bits); }
INLINE uint32_t float_to_bits(float v) { return as_type<uint>(v); }
INLINE float half_to_float(uint16_t h) { return float(as_type<half>(h)); }
INLINE float bf16_to_float(uint16_t h) { return as_type<float>(uint(h) << 16); }
INLINE float round_even(float v) { return rint(v); }
INLINE float root(float v) { return precise::sqrt(v); }
INLINE float quotient(float a, float b) { return a / b; }
INLINE float fused(float a, float b, float c) { return fma(a, b, c); }
// c and the products of four pairs of int8.
INLINE int32_t dot4(uint32_t a, uint32_t b, int32_t c) {
  const char4 x = as_type<char4>(a), y = as_type<char4>(b);
  return c + int(x.x) * y.x + int(x.y) * y.y + int(x.z) * y.z + int(x.w) * y.w;
}
