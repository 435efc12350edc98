#pragma once

// Random blocks of every quant type: any codes, finite scales of both signs, now and then zero.

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/f16.h"
#include "check.h"
#include "quant/quant_type.h"
#include "quant/unpack.h"

namespace test {

inline void put_half(uint8_t* at, float value) {
  const uint16_t bits = oxibonsai::float_to_half(value);
  std::memcpy(at, &bits, sizeof bits);
}

// An exponent byte whose power of two is about that of |value|.
inline uint8_t e8m0(float value) {
  const uint32_t exponent = (oxibonsai::float_to_bits(value) >> 23) & 255u;
  return static_cast<uint8_t>(exponent + 1);
}

// An unsigned E4M3 of about twice |value|.
inline uint8_t ue4m3(float value) {
  return static_cast<uint8_t>(oxibonsai::float_to_half(std::fabs(value) / 128.0f) >> 7);
}

inline void put_iq1_m_scale(uint8_t* block, float value) {
  const uint16_t bits = oxibonsai::float_to_half(value);
  for (int i = 0; i < 4; ++i) {
    uint8_t& upper = block[48 + 2 * i + 1];
    upper = static_cast<uint8_t>((upper & 15) | ((bits >> (4 * i)) & 15) << 4);
  }
}

// Finite scales and minima for a block of any bytes, each the next value of `next`; and codes of F8
// that are finite and not too large.
template <class Next>
void put_scales(oxibonsai::quant::QuantType type, uint8_t* block, Next next) {
  using oxibonsai::quant::QuantType;
  for (const int at : oxibonsai::quant::traits(type).half_at)
    if (at >= 0) put_half(block + at, next());
  if (type == QuantType::kQ8_K) {
    const float d = next();
    std::memcpy(block, &d, sizeof d);
  } else if (type == QuantType::kMXFP4) {
    *block = e8m0(next());
  } else if (type == QuantType::kNVFP4) {
    for (int g = 0; g < 4; ++g) block[g] = ue4m3(next());
  } else if (type == QuantType::kIQ1_M) {
    put_iq1_m_scale(block, next());
  } else if (type == QuantType::kF8_E4M3 || type == QuantType::kF8_E5M2) {
    for (int i = 0; i < 32; ++i)
      if ((block[i] & 0x7F) == 0x7F || type == QuantType::kF8_E5M2) block[i] &= 0xBF;
  }
}

inline std::vector<uint8_t> random_rows(std::mt19937& random, oxibonsai::quant::QuantType type,
                                        int64_t rows, int64_t cols) {
  const auto& t = oxibonsai::quant::traits(type);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * oxibonsai::quant::row_bytes(type, cols)));
  if (t.group == 1) {
    const auto values = normal(random, static_cast<size_t>(rows * cols), 0.05f);
    for (size_t i = 0; i < values.size(); ++i) {
      if (type == oxibonsai::quant::QuantType::kF32) std::memcpy(&bytes[4 * i], &values[i], 4);
      if (type == oxibonsai::quant::QuantType::kF16) put_half(&bytes[2 * i], values[i]);
      if (type == oxibonsai::quant::QuantType::kBF16)
        std::memcpy(&bytes[2 * i], reinterpret_cast<const uint8_t*>(&values[i]) + 2, 2);
    }
    return bytes;
  }
  for (auto& b : bytes) b = static_cast<uint8_t>(random());
  std::normal_distribution<float> scale(0.0f, 0.02f);
  const auto next = [&] {
    const uint32_t kind = random() % 16;
    return kind == 0 ? 0.0f : kind == 1 ? -0.0f : kind == 2 ? 1e-7f : scale(random);
  };
  for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(t.bytes))
    put_scales(type, &bytes[block], next);
  return bytes;
}

}  // namespace test
