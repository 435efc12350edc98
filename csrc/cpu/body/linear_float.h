// Linear layers over float weights (F32, F16, BF16), read from the file's own rows: for each row a
// 16-lane fma reduction (docs/arithmetic.md, rule 2). A block of 4 rows by up to 4 tokens shares
// its loads; the order of a row's sums doesn't depend on the block. Include after a tier's simd.h.

#include <cstdint>

#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::LinearArgs;

struct RowsF32 {
  static constexpr int kBytes = 4;
  static simd::Vec load(const uint8_t* p) { return simd::load(reinterpret_cast<const float*>(p)); }
  static simd::Vec load_n(const uint8_t* p, int n) {
    return simd::load_n(reinterpret_cast<const float*>(p), n);
  }
};

struct RowsF16 {
  static constexpr int kBytes = 2;
  static simd::Vec load(const uint8_t* p) {
    return simd::load_half(reinterpret_cast<const uint16_t*>(p));
  }
  static simd::Vec load_n(const uint8_t* p, int n) {
    return simd::load_half_n(reinterpret_cast<const uint16_t*>(p), n);
  }
};

struct RowsBF16 {
  static constexpr int kBytes = 2;
  static simd::Vec load(const uint8_t* p) {
    return simd::load_bf16(reinterpret_cast<const uint16_t*>(p));
  }
  static simd::Vec load_n(const uint8_t* p, int n) {
    return simd::load_bf16_n(reinterpret_cast<const uint16_t*>(p), n);
  }
};

inline void finish(const LinearArgs& a, int64_t t, int64_t r, float value) {
  if (a.bias != nullptr) value = value + a.bias[r];
  if (a.add != nullptr) value = value + a.add[t * a.stride + r];
  a.y[t * a.stride + r] = value;
}

template <class Rows, int R, int T>
inline void dot_block(const LinearArgs& a, int64_t r, int64_t t) {
  using namespace simd;
  Vec acc[R][T];
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < T; ++j) acc[i][j] = zero();
  const uint8_t* w = a.weight + r * a.row_bytes;
  const float* x = a.xf + t * a.cols;
  int64_t k = 0;
  for (; k + kLanes <= a.cols; k += kLanes) {
    for (int i = 0; i < R; ++i) {
      const Vec wi = Rows::load(w + i * a.row_bytes + k * Rows::kBytes);
      for (int j = 0; j < T; ++j) acc[i][j] = fma(wi, load(x + j * a.cols + k), acc[i][j]);
    }
  }
  if (k < a.cols) {
    const int rest = static_cast<int>(a.cols - k);
    for (int i = 0; i < R; ++i) {
      const Vec wi = Rows::load_n(w + i * a.row_bytes + k * Rows::kBytes, rest);
      for (int j = 0; j < T; ++j) acc[i][j] = fma(wi, load_n(x + j * a.cols + k, rest), acc[i][j]);
    }
  }
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < T; ++j) finish(a, t + j, r + i, fold_sum(acc[i][j]));
}

template <class Rows, int R>
inline void dot_rows(const LinearArgs& a, int64_t r) {
  int64_t t = a.first_token;
  for (; t + 4 <= a.last_token; t += 4) dot_block<Rows, R, 4>(a, r, t);
  for (; t < a.last_token; ++t) dot_block<Rows, R, 1>(a, r, t);
}

template <class Rows>
void linear_float(const LinearArgs& a) {
  int64_t r = a.first;
  for (; r + 4 <= a.last; r += 4) dot_rows<Rows, 4>(a, r);
  for (; r < a.last; ++r) dot_rows<Rows, 1>(a, r);
}

}  // namespace
