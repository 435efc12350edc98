// Types whose codes stand for codebook values (quant/codebook_values.h).

#include "quant/codebook_values.h"
#include "quant/encoders.h"
#include "quant/fit_block.h"
#include "quant/fp4_scales.h"

namespace oxibonsai::quant {
namespace {

constexpr Places kIq4Places{96.0f, 160.0f, 4};
constexpr BlockForm kIq4Xs{8, kIq4Places, {-32.0f, 31.0f}, {24.0f, 33.0f, 4}};
constexpr uint8_t kLargestUe4m3 = 0x7E;

const CodebookValues& iq4_values() {
  static const CodebookValues values(kIq4Values);
  return values;
}

const CodebookValues& fp4_values() {
  static const CodebookValues values(kFp4Values);
  return values;
}

void set_codes(const CodebookValues& values, const float* q, int count, uint8_t* code) {
  for (int j = 0; j < count; ++j) code[j] = values.code_of(q[j]);
}

}  // namespace

void fit_iq4_nl(const float* values, const float* importance, BlockParts* parts) {
  Group group;
  group.set(values, importance, 32);
  const float scale = fit_scale(group, iq4_values(), kIq4Places);
  parts->d = nearest_half(scale);
  float q[32];
  round_to(group, iq4_values(), {half_to_float(parts->d), 0.0f}, q);
  set_codes(iq4_values(), q, 32, parts->code);
}

void fit_iq4_xs(const float* values, const float* importance, BlockParts* parts) {
  float q[kBlock];
  fit_scaled_block(values, importance, kIq4Xs, iq4_values(), parts, q);
  set_codes(iq4_values(), q, kBlock, parts->code);
}

// Three powers of two are tried: the largest value then is 3/4, 3/2 or 3 times the power of two
// below the largest weight. Errors are compared with the weights brought near 1, where no square
// leaves the range of a float.
void fit_mxfp4(const float* values, const float* importance, BlockParts* parts) {
  const auto exponent = static_cast<int>(float_to_bits(std::fabs(extreme(values, 32))) >> 23);
  const float near_one = bits_to_float(exponent < 254 ? (254u - exponent) << 23 : 0x00400000u);
  Group group;
  group.set(values, importance, 32);
  for (int j = 0; j < 32; ++j) group.value[j] *= near_one;
  const Lanes scales{0.0625f, 0.125f, 0.25f, 0.5f};
  const Lanes error = errors_of_four(group, fp4_values(), scales, all(0.0f));
  int best = exponent < 3 ? 3 - exponent : 0;  // no stored exponent is below 0
  for (int k = best + 1; k < 3; ++k)
    if (error[k] < error[best]) best = k;
  parts->wide[0] = mxfp4_scale(static_cast<uint32_t>(exponent + best - 3));
  float q[32];
  round_to(group, fp4_values(), {scales[best], 0.0f}, q);
  set_codes(fp4_values(), q, 32, parts->code);
}

// Each group tries the scales that bring its largest weight to 6 (twice: value 12) or near it.
void fit_nvfp4(const float* values, const float* importance, BlockParts* parts) {
  for (int g = 0; g < 4; ++g) {
    Group group;
    group.set(values + 16 * g, importance == nullptr ? nullptr : importance + 16 * g, 16);
    const float full = std::fabs(extreme(group.value, 16)) / 12.0f;
    int code = 0;
    while (code < kLargestUe4m3 && nvfp4_scale(code) < full) ++code;
    const int first = clamp(code - 8, 0, kLargestUe4m3 - 11);
    float least = -1.0f;
    for (int c = first; c < first + 12; c += kLanes) {
      const Lanes scales{nvfp4_scale(c), nvfp4_scale(c + 1), nvfp4_scale(c + 2),
                         nvfp4_scale(c + 3)};
      const Lanes error = errors_of_four(group, fp4_values(), scales, all(0.0f));
      for (int k = 0; k < kLanes; ++k) {
        if (least >= 0.0f && error[k] >= least) continue;
        least = error[k];
        parts->wide[g] = scales[k];
      }
    }
    float q[16];
    round_to(group, fp4_values(), {parts->wide[g], 0.0f}, q);
    set_codes(fp4_values(), q, 16, parts->code + 16 * g);
  }
}

}  // namespace oxibonsai::quant
