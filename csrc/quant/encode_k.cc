#include "quant/encoders.h"
#include "quant/fit_block.h"

namespace oxibonsai::quant {
namespace {

// 64 steps are fine enough for a few places near the full range; with eight, cutting off the
// largest weight, or leaving codes unused, may pay.
constexpr BlockForm kQ3{16, {2.8f, 5.4f, 1}, {-32.0f, 31.0f}, {24.0f, 33.0f, 4}};
constexpr BlockForm kQ6{16, {30.5f, 33.0f, 2}, {-128.0f, 127.0f}, {112.0f, 128.0f, 4}};
constexpr BlockForm kQ2{16, {2.0f, 4.6f, 4}, {0.0f, 15.0f}, {8.0f, 16.0f, 4}};
constexpr BlockForm kQ4{8, {13.5f, 17.5f, 5}, {0.0f, 63.0f}, {44.0f, 63.0f, 5}};
constexpr BlockForm kQ5{8, {30.0f, 33.0f, 4}, {0.0f, 63.0f}, {44.0f, 63.0f, 5}};

void fit_integers(const float* values, const float* importance, const BlockForm& form,
                  Integers codes, BlockParts* parts) {
  float q[kBlock];
  fit_scaled_block(values, importance, form, codes, parts, q);
  for (int j = 0; j < kBlock; ++j) parts->code[j] = static_cast<uint8_t>(q[j] - codes.low);
}

}  // namespace

void fit_q2_k(const float* values, const float* importance, BlockParts* parts) {
  fit_affine_block(values, importance, kQ2, 3.0f, parts);
}

void fit_q3_k(const float* values, const float* importance, BlockParts* parts) {
  fit_integers(values, importance, kQ3, {-4.0f, 3.0f}, parts);
}

void fit_q4_k(const float* values, const float* importance, BlockParts* parts) {
  fit_affine_block(values, importance, kQ4, 15.0f, parts);
}

void fit_q5_k(const float* values, const float* importance, BlockParts* parts) {
  fit_affine_block(values, importance, kQ5, 31.0f, parts);
}

void fit_q6_k(const float* values, const float* importance, BlockParts* parts) {
  fit_integers(values, importance, kQ6, {-32.0f, 31.0f}, parts);
}

}  // namespace oxibonsai::quant
