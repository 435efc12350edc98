#pragma once

// Random blocks of every quant type: any codes, finite scales of both signs, now and then zero.

#include <cstdint>
#include <random>
#include <vector>

#include "base/f16.h"
#include "check.h"
#include "quant/quant_type.h"
#include "quant/split.h"

namespace test {

inline void put_half(uint8_t* at, float value) {
  const uint16_t bits = oxibonsai::float_to_half(value);
  std::memcpy(at, &bits, sizeof bits);
}

// Byte offsets of the binary16 fields of a block.
inline std::vector<int> half_fields(oxibonsai::quant::QuantType type) {
  std::vector<int> fields;
  for (const int at : oxibonsai::quant::traits(type).half_at)
    if (at >= 0) fields.push_back(at);
  return fields;
}

inline std::vector<uint8_t> random_rows(std::mt19937& random, oxibonsai::quant::QuantType type,
                                        int64_t rows, int64_t cols) {
  const auto& t = oxibonsai::quant::traits(type);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * oxibonsai::quant::row_bytes(type, cols)));
  if (!oxibonsai::quant::is_integer(type)) {
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
  for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(t.bytes))
    for (const int field : half_fields(type)) {
      const uint32_t kind = random() % 16;
      put_half(&bytes[block + static_cast<size_t>(field)], kind == 0   ? 0.0f
                                                           : kind == 1 ? -0.0f
                                                           : kind == 2 ? 1e-7f
                                                                       : scale(random));
    }
  return bytes;
}

}  // namespace test
