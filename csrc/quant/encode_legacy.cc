#include <cmath>

#include "base/f16.h"
#include "quant/encoders.h"
#include "quant/fit_even.h"
#include "quant/fit_scale.h"
#include "quant/rounding.h"

namespace oxibonsai::quant {

// The three types of bytes are llama.cpp's reference, to the byte.
void fit_q8_0(const float* values, const float*, BlockParts* parts) {
  const float d = std::fabs(extreme(values, 32)) / 127.0f;
  const float inverted = inverse(d);
  int sum = 0;
  for (int j = 0; j < 32; ++j) {
    const int q = round_half_away(values[j] * inverted);
    parts->code[j] = static_cast<uint8_t>(q + 128);
    sum += q;
  }
  parts->d = float_to_half(d);
  parts->m = nearest_half(static_cast<float>(sum) * d);  // of Q8_1
}

void fit_q8_k(const float* values, const float*, BlockParts* parts) {
  const float inverted = ratio(-127.0f, extreme(values, 256));
  parts->wide[0] = inverse(inverted);
  for (int j = 0; j < 256; ++j) {
    const int q = static_cast<int>(round_half_even(values[j] * inverted));
    parts->code[j] = static_cast<uint8_t>(clamp(q, -127, 127) + 128);
  }
}

namespace {

// d for weights that are d times an integer, and the codes, which start at 0.
void fit_integers(const float* values, const float* importance, Integers codes, Places places,
                  BlockParts* parts) {
  Group group;
  group.set(values, importance, 32);
  parts->d = nearest_half(fit_scale(group, codes, places));
  float q[32];
  round_to(group, codes, {half_to_float(parts->d), 0.0f}, q);
  for (int j = 0; j < 32; ++j) parts->code[j] = static_cast<uint8_t>(q[j] - codes.low);
}

// d and m for weights that are d * code + m; m suits the d that is stored.
void fit_line_of(const float* values, const float* importance, float high, Places places,
                 BlockParts* parts) {
  Group group;
  group.set(values, importance, 32);
  const Line line = fit_line(group, high, places, Minimum::kAny);
  parts->d = nearest_half(line.scale);
  const float d = half_to_float(parts->d);
  parts->m = nearest_half(solve_min(group, high, line, d));
  float q[32];
  round_to(group, Integers{0.0f, high}, {d, half_to_float(parts->m)}, q);
  for (int j = 0; j < 32; ++j) parts->code[j] = static_cast<uint8_t>(q[j]);
}

}  // namespace

// Without importance as llama.cpp's reference, to the byte: the extreme weight gets code 0.
void fit_q4_0(const float* values, const float* importance, BlockParts* parts) {
  if (importance != nullptr)
    return fit_integers(values, importance, {-8.0f, 7.0f}, {6.0f, 10.0f, 4}, parts);
  const float d = extreme(values, 32) / -8.0f;
  const float inverted = inverse(d);
  parts->d = float_to_half(d);
  for (int j = 0; j < 32; ++j)
    parts->code[j] =
        static_cast<uint8_t>(clamp(static_cast<int>(values[j] * inverted + 8.5f), 0, 15));
}

void fit_q4_1(const float* values, const float* importance, BlockParts* parts) {
  if (importance == nullptr) return fit_even_line(values, 15.0f, parts);
  fit_line_of(values, importance, 15.0f, {13.5f, 17.5f, 5}, parts);
}

void fit_q5_0(const float* values, const float* importance, BlockParts* parts) {
  if (importance == nullptr) return fit_even_integers(values, parts);
  fit_integers(values, importance, {-16.0f, 15.0f}, {14.0f, 17.5f, 4}, parts);
}

void fit_q5_1(const float* values, const float* importance, BlockParts* parts) {
  if (importance == nullptr) return fit_even_line(values, 31.0f, parts);
  fit_line_of(values, importance, 31.0f, {30.0f, 33.0f, 4}, parts);
}

}  // namespace oxibonsai::quant
