#pragma once

// The dialect (gpu/dialect.h) in CUDA C++, for compute capability 7.5 and later. Compile with
// -fmad=false and without fast math.

#if defined(__CUDACC_RTC__)
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#endif

#define GLOBAL
#define GROUP
#define PRIVATE
#define CONSTANT static __constant__ const
#define INLINE static __device__ __forceinline__
#define INLINE_MEMBER __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define SHARED(type, name, count) alignas(16) __shared__ type name[count]
#define READ(index, type, name) const type* __restrict__ name
#define WRITE(index, type, name) type* name
#define KERNEL(name, Args, ...) extern "C" __global__ void name(const Args args, __VA_ARGS__)
#define ARGS(type) const type&
#define THREAD threadIdx.x
#define BLOCK_X blockIdx.x
#define BLOCK_Y blockIdx.y
#define BLOCK_Z blockIdx.z
#define BARRIER() __syncthreads()

#define shuffle_down(value, by) __shfl_down_sync(~0u, value, by)
#define shuffle_from(value, lane) __shfl_sync(~0u, value, lane)

INLINE float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
INLINE uint32_t float_to_bits(float v) { return __float_as_uint(v); }
INLINE float half_to_float(uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
INLINE float bf16_to_float(uint16_t h) { return __uint_as_float(uint32_t(h) << 16); }
INLINE float round_even(float v) { return rintf(v); }
INLINE float root(float v) { return __fsqrt_rn(v); }
INLINE float quotient(float a, float b) { return a / b; }
INLINE float fused(float a, float b, float c) { return fmaf(a, b, c); }
// Bytes of a (0 .. 3) and b (4 .. 7) that the four nibbles of a selector name.
INLINE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}
// c and the products of four pairs of int8.
INLINE int32_t dot4(uint32_t a, uint32_t b, int32_t c) { return __dp4a(int32_t(a), int32_t(b), c); }

// Adds 1 and returns what was there. The block that gets the last of several numbers sees, behind
// see_others(), all that the blocks of the others wrote before, where a BARRIER() stands on either
// side. Only that block pays for the second fence, which empties the first-level cache.
#define HAS_COUNT_UP 1
INLINE uint32_t count_up(uint32_t* counter) {
  __threadfence();
  return atomicAdd(counter, 1u);
}
INLINE void see_others() { __threadfence(); }

// A 16 x 8 tile of int32 sums, of 16 rows of A and 8 columns of B with 32 int8 each, the layout of
// mma.sync: lane 4g + i has of A the bytes 4i .. 4i + 3 of row g (a[0]) and row g + 8 (a[1]), and
// those 16 further on (a[2], a[3]); of B the same of column g (b[0], b[1]); of the sums those of
// row g, columns 2i and 2i + 1, and of row g + 8.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define HAS_MMA_16 1
#define multiply_tile_32(c, a, b)                                                               \
  asm volatile(                                                                                 \
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, " \
      "{%0,%1,%2,%3};"                                                                          \
      : "+r"((c)[0]), "+r"((c)[1]), "+r"((c)[2]), "+r"((c)[3])                                  \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
// The same with 16 int8 each: a[0], a[1] and b[0].
#define multiply_tile_16(c, a, b)                                                      \
  asm volatile(                                                                        \
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, " \
      "{%0,%1,%2,%3};"                                                                 \
      : "+r"((c)[0]), "+r"((c)[1]), "+r"((c)[2]), "+r"((c)[3])                         \
      : "r"((a)[0]), "r"((a)[1]), "r"((b)[0]))
#else
#define HAS_MMA_8 1
// The same for 8 rows and 16 int8, of which a lane has a word of row g and one of column g, and the
// sums c[0] and c[1].
#define multiply_tile_8(c, a, b)                                                              \
  asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" \
               : "+r"((c)[0]), "+r"((c)[1])                                                   \
               : "r"(a), "r"(b))
#endif
