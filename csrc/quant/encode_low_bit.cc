// Binary and ternary types, rounded as llama.cpp's reference does. Weights that a type can hold are
// kept exactly: the mean of equal magnitudes, and their maximum, are the magnitude itself.

#include <cmath>

#include "base/f16.h"
#include "quant/encoders.h"
#include "quant/rounding.h"

namespace oxibonsai::quant {
namespace {

template <int kGroup>
void fit_ternary(const float* values, BlockParts* parts) {
  const float largest = std::fabs(extreme(values, kGroup));
  parts->d = float_to_half(largest);
  const float inverted = inverse(largest);
  for (int j = 0; j < kGroup; ++j)
    parts->code[j] = static_cast<uint8_t>(round_half_away(values[j] * inverted) + 1);
}

}  // namespace

void fit_binary_128(const float* values, const float*, BlockParts* parts) {
  float sum = 0.0f;
  for (int j = 0; j < 128; ++j) sum += std::fabs(values[j]);
  parts->d = float_to_half(sum / 128.0f);
  for (int j = 0; j < 128; ++j) parts->code[j] = values[j] >= 0.0f;
}

void fit_ternary_64(const float* values, const float*, BlockParts* parts) {
  fit_ternary<64>(values, parts);
}

void fit_ternary_128(const float* values, const float*, BlockParts* parts) {
  fit_ternary<128>(values, parts);
}

void fit_ternary_256(const float* values, const float*, BlockParts* parts) {
  fit_ternary<256>(values, parts);
}

}  // namespace oxibonsai::quant
