#pragma once

// One dialect for four compilers: CUDA C++ (nvcc, NVRTC), Metal Shading Language, C++ for OpenCL
// (clang), and C++ whose threads are emulated (gpu/emulator). A kernel sees blocks of threads in
// warps of 32, memory that a block shares, barriers, shuffles, and arithmetic of which nothing is
// fused, reassociated or approximated: docs/arithmetic.md holds on every device.
//
//   KERNEL(name, Args, READ(1, float, x), WRITE(2, float, y)) { ... }
//
// defines a kernel: `args` are its constants, READ and WRITE its buffers with their places, in
// order from 1. In its body alone there are THREAD (of the block), LANE, WARP, BLOCK_X, BLOCK_Y,
// BLOCK_Z, and SHARED(type, name, count), memory of the block with any contents at first, on a
// boundary of 16 bytes. Functions are INLINE; their pointers are GLOBAL, GROUP (to SHARED memory)
// or PRIVATE. All threads of a block meet at BARRIER(), all lanes of a warp in a shuffle: never in
// a branch that some don't take. Loops are UNROLL or NO_UNROLL where the compiler should not
// choose. Floats are divided by quotient(), never by /, which OpenCL rounds as it likes.
//
// Not in the dialect: double, lambdas, virtual functions, the standard library.

#if defined(__METAL_VERSION__)
#include "gpu/dialect_metal.h"
#elif defined(__CUDACC__)
#include "gpu/dialect_cuda.h"
#elif defined(__OPENCL_CPP_VERSION__)
#include "gpu/dialect_opencl.h"
#else
#include "gpu/dialect_emulator.h"
#endif

#define LANE (THREAD & 31u)
#define WARP (THREAD >> 5)

// The second where the comparison is false, so also where one is NaN (docs/arithmetic.md, rule 1).
template <class T>
INLINE T larger(T a, T b) {
  return a > b ? a : b;
}
template <class T>
INLINE T smaller(T a, T b) {
  return a < b ? a : b;
}

#if !defined(__CUDACC__)  // where an instruction does it
// Bytes of a (0 .. 3) and b (4 .. 7) that the four nibbles of a selector name.
INLINE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t all = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i)
    result |= (uint32_t(all >> (8 * (selector >> (4 * i) & 7))) & 255u) << (8 * i);
  return result;
}
#endif

INLINE float magnitude(float v) { return bits_to_float(float_to_bits(v) & 0x7FFFFFFFu); }

#define TINY 8.67361737988403547e-19f  // 2^-60

// A result of a step that is tiny is +0 (docs/arithmetic.md, rule 11).
INLINE float flush_tiny(float v) { return magnitude(v) < TINY ? 0.0f : v; }

INLINE float infinity() { return bits_to_float(0x7F800000u); }
