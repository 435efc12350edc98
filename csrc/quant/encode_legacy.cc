#include <cmath>

#include "base/f16.h"
#include "quant/encoders.h"
#include "quant/rounding.h"

namespace oxibonsai::quant {
// The three types of bytes follow llama.cpp's reference, Q8_0 to the byte.
void fit_q8_0(const float* values, const float*, BlockParts* parts) {
  const float d = std::fabs(extreme(values, 32)) / 127.0f;
  const float inverted = inverse(d);
  parts->d = float_to_half(d);
  for (int j = 0; j < 32; ++j)
    parts->code[j] = static_cast<uint8_t>(round_half_away(values[j] * inverted) + 128);
}

void fit_q8_1(const float* values, const float* importance, BlockParts* parts) {
  fit_q8_0(values, importance, parts);
  int sum = 0;
  for (int j = 0; j < 32; ++j) sum += parts->code[j] - 128;
  parts->m = float_to_half(half_to_float(parts->d) * static_cast<float>(sum));
}

void fit_q8_k(const float* values, const float*, BlockParts* parts) {
  const float inverted = -127.0f * inverse(extreme(values, 256));
  parts->wide[0] = inverse(inverted);
  for (int j = 0; j < 256; ++j) {
    const int q = static_cast<int>(round_half_even(values[j] * inverted));
    parts->code[j] = static_cast<uint8_t>(clamp(q, -127, 127) + 128);
  }
}

// Without importance as llama.cpp's reference, to the byte: the extreme weight gets code 0.
void fit_q4_0(const float* values, const float*, BlockParts* parts) {
  const float d = extreme(values, 32) / -8.0f;
  const float inverted = inverse(d);
  parts->d = float_to_half(d);
  for (int j = 0; j < 32; ++j)
    parts->code[j] =
        static_cast<uint8_t>(clamp(static_cast<int>(values[j] * inverted + 8.5f), 0, 15));
}

}  // namespace oxibonsai::quant
