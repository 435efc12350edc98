#include "quant/encode.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "quant/encoders.h"
#include "quant/pack.h"

namespace oxibonsai::quant {
namespace {

constexpr float kLargestHalf = 65504.0f;
constexpr float kBelowHalfOverflow = 65519.99f;  // what rounds to 65504
constexpr float kBelowBf16Overflow = 3.3961775e38f;

template <QuantType kType, FitBlock* kFit>
void encode_row(const float* values, const float* importance, int64_t cols, uint8_t* blocks) {
  const QuantTraits& t = traits(kType);
  BlockParts parts{};
  for (int64_t i = 0; i < cols; i += t.group, blocks += t.bytes) {
    kFit(values + i, importance != nullptr ? importance + i : nullptr, &parts);
    pack_block(kType, parts, blocks);
  }
}

// A type whose encoder does not look at importance.
template <QuantType kType, FitBlock* kFit>
constexpr Encoder plain(float largest) {
  return {encode_row<kType, kFit>, Importance::kUnused, largest};
}

template <QuantType kType, FitBlock* kFit>
constexpr Encoder weighted(float largest) {
  return {encode_row<kType, kFit>, Importance::kOptional, largest};
}

constexpr Encoder floats(EncodeRow* row, float largest) {
  return {row, Importance::kUnused, largest};
}

using T = QuantType;

// In the order of QuantType.
constexpr Encoder kEncoders[] = {
    floats(encode_f32, 3.4028235e38f),
    floats(encode_f16, kBelowHalfOverflow),
    floats(encode_bf16, kBelowBf16Overflow),
    plain<T::kQ8_0, fit_q8_0>(127 * kLargestHalf),
    weighted<T::kQ4_0, fit_q4_0>(8 * kLargestHalf),
    weighted<T::kQ4_1, fit_q4_1>(kLargestHalf),
    weighted<T::kQ5_0, fit_q5_0>(16 * kLargestHalf),
    weighted<T::kQ5_1, fit_q5_1>(kLargestHalf),
    weighted<T::kQ4_K, fit_q4_k>(15 * kLargestHalf),
    weighted<T::kQ5_K, fit_q5_k>(31 * kLargestHalf),
    weighted<T::kQ6_K, fit_q6_k>(32 * kLargestHalf),
    plain<T::kQ1_0, fit_binary_128>(kLargestHalf),
    plain<T::kQ2_0_g64, fit_ternary_64>(kLargestHalf),
    plain<T::kQ2_0_g128, fit_ternary_128>(kLargestHalf),
    plain<T::kPTQ1_0, fit_ternary_128>(kLargestHalf),
    plain<T::kTQ2_0_g128, fit_ternary_128>(kLargestHalf),
    plain<T::kTQ1_0, fit_ternary_256>(kLargestHalf),
    plain<T::kTQ2_0, fit_ternary_256>(kLargestHalf),
    plain<T::kQ8_1, fit_q8_0>(127 * kLargestHalf),
    plain<T::kQ8_K, fit_q8_k>(3.4028235e38f),
    weighted<T::kQ2_K, fit_q2_k>(3 * kLargestHalf),
    weighted<T::kQ3_K, fit_q3_k>(4 * kLargestHalf),
    weighted<T::kIQ4_NL, fit_iq4_nl>(113 * kLargestHalf),
    weighted<T::kIQ4_XS, fit_iq4_xs>(113 * kLargestHalf),
    weighted<T::kMXFP4, fit_mxfp4>(2.55211775e38f),
    weighted<T::kNVFP4, fit_nvfp4>(6 * 448.0f),
    {encode_iq2_xxs, Importance::kNeeded, kLargestHalf / 8 * 31 * 43},
    {encode_iq2_xs, Importance::kNeeded, kLargestHalf / 8 * 31 * 43},
    {encode_iq2_s, Importance::kOptional, kLargestHalf / 8 * 31 * 43},
    {encode_iq3_xxs, Importance::kOptional, kLargestHalf / 4 * 31 * 62},
    {encode_iq3_s, Importance::kOptional, kLargestHalf * 31 * 15},
    {encode_iq1_s, Importance::kNeeded, kLargestHalf / 8 * 15 * 9},
    {encode_iq1_m, Importance::kOptional, kLargestHalf / 8 * 15 * 9},
    floats(encode_f8_e4m3, 448 * kLargestHalf),
    floats(encode_f8_e5m2, 57344 * kLargestHalf),
};
static_assert(sizeof kEncoders / sizeof kEncoders[0] == static_cast<int>(QuantType::kCount));

// No branch for each value, so that compilers check many at once.
bool all_within(const float* values, int64_t count, float largest) {
  int32_t outside = 0;
  for (int64_t i = 0; i < count; ++i) outside |= !(std::fabs(values[i]) <= largest);
  return outside == 0;
}

// The same ratios with mean 1. Columns of no importance keep a thousandth of the mean, so that
// their weights stay near what they were.
std::vector<float> balance(const float* importance, int64_t cols) {
  double sum = 0.0;
  for (int64_t i = 0; i < cols; ++i) {
    if (!std::isfinite(importance[i]) || importance[i] < 0.0f)
      throw RequestError("the importance of column " + std::to_string(i) +
                         " is negative or not finite");
    sum += importance[i];
  }
  std::vector<float> balanced(cols, 1.0f);
  if (sum == 0.0) return balanced;
  const double scale = static_cast<double>(cols) / sum;
  for (int64_t i = 0; i < cols; ++i)
    balanced[i] = std::max(static_cast<float>(importance[i] * scale), 1e-3f);
  return balanced;
}

}  // namespace

const Encoder& encoder_of(QuantType type) { return kEncoders[static_cast<int>(type)]; }

void check_values(QuantType type, const float* values, int64_t rows, int64_t cols) {
  const Encoder& encoder = encoder_of(type);
  if (all_within(values, rows * cols, encoder.largest)) return;
  for (int64_t i = 0; i < rows * cols; ++i) {
    if (std::fabs(values[i]) <= encoder.largest) continue;
    const std::string where =
        "row " + std::to_string(i / cols) + ", column " + std::to_string(i % cols);
    if (!std::isfinite(values[i])) throw FormatError("the weight in " + where + " is not finite");
    throw FormatError("the weight in " + where + " is too large for " + traits(type).name +
                      ": choose a type with a wider range, such as F32");
  }
}

void encode(QuantType type, const float* values, int64_t rows, int64_t cols,
            const float* importance, ThreadPool& pool, uint8_t* blocks) {
  const Encoder& encoder = encoder_of(type);
  const char* name = traits(type).name;
  if (encoder.importance == Importance::kNeeded && importance == nullptr)
    throw RequestError(std::string(name) + " needs the importance of columns (an imatrix)");
  const int64_t bytes = row_bytes(type, cols);
  check_values(type, values, rows, cols);
  std::vector<float> balanced;
  if (importance != nullptr) balanced = balance(importance, cols);
  const float* weights = balanced.empty() ? nullptr : balanced.data();
  pool.for_each(rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      encoder.row(values + r * cols, weights, cols, blocks + r * bytes);
  });
}

}  // namespace oxibonsai::quant
