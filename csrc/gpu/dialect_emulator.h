#pragma once

// The dialect (gpu/dialect.h) in C++ over emulated threads. A kernel registers itself, so that a
// launch finds it by its name.

#include <cmath>
#include <cstdint>

#include "base/f16.h"
#include "gpu/emulator/emulator.h"

#define GLOBAL
#define GROUP
#define PRIVATE
#define CONSTANT static const
#define INLINE static inline
#define INLINE_MEMBER inline
#define UNROLL
#define NO_UNROLL
#define SHARED(type, name, count) \
  type* const name = oxibonsai::gpu::emulator::shared<type>(__COUNTER__, count)
#define READ(index, type, name) const type* name
#define WRITE(index, type, name) type* name
#define KERNEL(name, Args, ...)                                                          \
  static void name(const Args& args, __VA_ARGS__);                                       \
  static const bool oxi_registered_##name = oxibonsai::gpu::emulator::add<&name>(#name); \
  static void name([[maybe_unused]] const Args& args, __VA_ARGS__)
#define ARGS(type) const type&
#define THREAD oxibonsai::gpu::emulator::thread()
#define BLOCK_X oxibonsai::gpu::emulator::block().x
#define BLOCK_Y oxibonsai::gpu::emulator::block().y
#define BLOCK_Z oxibonsai::gpu::emulator::block().z
#define BARRIER() oxibonsai::gpu::emulator::barrier(__LINE__)

#define shuffle_down(value, by) oxibonsai::gpu::emulator::shuffle_down(value, by, __LINE__)
#define shuffle_from(value, lane) oxibonsai::gpu::emulator::shuffle_from(value, lane, __LINE__)

using oxibonsai::bf16_to_float;
using oxibonsai::bits_to_float;
using oxibonsai::half_to_float;
INLINE uint32_t float_to_bits(float v) { return oxibonsai::float_to_bits(v); }
INLINE float round_even(float v) { return std::nearbyint(v); }
INLINE float root(float v) { return std::sqrt(v); }
INLINE float quotient(float a, float b) { return a / b; }
INLINE float fused(float a, float b, float c) { return std::fma(a, b, c); }
INLINE int32_t dot4(uint32_t a, uint32_t b, int32_t c) {
  for (int i = 0; i < 32; i += 8) c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return c;
}

// Blocks run one after the other.
#define HAS_COUNT_UP 1
INLINE uint32_t count_up(uint32_t* counter) { return (*counter)++; }
INLINE void see_others() {}

#define HAS_MMA_16 1
#define HAS_MMA_8 1
#define multiply_tile_32(c, a, b) oxibonsai::gpu::emulator::multiply_tile<2>(c, a, b, __LINE__)
#define multiply_tile_16(c, a, b) oxibonsai::gpu::emulator::multiply_tile<1>(c, a, b, __LINE__)
#define multiply_tile_8(c, a, b) oxibonsai::gpu::emulator::multiply_small_tile(c, a, b, __LINE__)
