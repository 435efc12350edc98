// Linear layers over float weights (F32, F16, BF16, F8), read from the file's own rows: for each
// row a 16-lane fma reduction (docs/arithmetic.md, rule 2). A block of simd::kDotRows rows by
// simd::kDotTokens tokens shares its loads; the order of a row's sums doesn't depend on the block.
//
// Budget for 16 columns of a block of R rows and T tokens: R loads that widen, T loads and R * T
// fmas, whose sums fill the registers (24 of 32 with 512 bits, 12 of 16 with 256; 4 x 4 spilled
// there and had two thirds of the speed); at the end of a row, its sums fold four at a time where a
// tier has that. A few rows stay in the first-level cache while the panel's tokens pass over them
// from the second, and the next rows, which come from further away, are fetched during the first
// tokens. With less than T tokens the weights' memory is the limit, and rows are taken one by one,
// as a single stream: on Zen 5 two threads reach 95 % of its bandwidth so, 80 % with R streams. The
// other way around, tokens that stay while rows pass, waits for the rows: on Zen 5,
// F16, 4,096 x 1,024, GFLOP/s of one thread: 187 so, 135 with 4 x 4 and nothing fetched, 119 with
// resident tokens; the fmas alone reach 236. Include after a tier's simd.h.

#include <cstdint>

#include "cpu/body/fetch.h"
#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::LinearArgs;

// What a row holds at column k, and at its last n columns. fetch_ahead() is for one token, whose
// weights stream from memory; fetch() for a row that is next.
struct RowsF32 {
  static simd::Vec load(const uint8_t* row, int64_t k) { return simd::load(at(row, k)); }
  static simd::Vec load_n(const uint8_t* row, int64_t k, int n) {
    return simd::load_n(at(row, k), n);
  }
  static void fetch_ahead(const uint8_t* row, int64_t k) {
    __builtin_prefetch(row + 4 * k + kAhead, 0, 2);
  }
  static void fetch(const uint8_t* row, int64_t k) { __builtin_prefetch(row + 4 * k, 0, 3); }
  static const float* at(const uint8_t* row, int64_t k) {
    return reinterpret_cast<const float*>(row) + k;
  }
};

inline const uint16_t* halves_at(const uint8_t* row, int64_t k) {
  return reinterpret_cast<const uint16_t*>(row) + k;
}

struct RowsF16 {
  static void fetch_ahead(const uint8_t* row, int64_t k) {
    __builtin_prefetch(row + 2 * k + kAhead, 0, 2);
  }
  static void fetch(const uint8_t* row, int64_t k) { __builtin_prefetch(row + 2 * k, 0, 3); }
  static simd::Vec load(const uint8_t* row, int64_t k) {
    return simd::load_half(halves_at(row, k));
  }
  static simd::Vec load_n(const uint8_t* row, int64_t k, int n) {
    return simd::load_half_n(halves_at(row, k), n);
  }
};

struct RowsBF16 {
  static void fetch_ahead(const uint8_t* row, int64_t k) {
    __builtin_prefetch(row + 2 * k + kAhead, 0, 2);
  }
  static void fetch(const uint8_t* row, int64_t k) { __builtin_prefetch(row + 2 * k, 0, 3); }
  static simd::Vec load(const uint8_t* row, int64_t k) {
    return simd::load_bf16(halves_at(row, k));
  }
  static simd::Vec load_n(const uint8_t* row, int64_t k, int n) {
    return simd::load_bf16_n(halves_at(row, k), n);
  }
};

// Sixteen codes of a block of 32 and its scale, which are cast to binary16 and multiplied. E4M3 is
// binary16 but for an exponent that is 8 smaller; its NaN is refused before it gets here.
template <int kShift, int kScale>
struct RowsF8 {
  static void fetch_ahead(const uint8_t*, int64_t) {}
  static void fetch(const uint8_t*, int64_t) {}
  static simd::Vec load(const uint8_t* row, int64_t k) {
    const uint8_t* block = row + k / 32 * 34;
    uint16_t half[16];
    for (int i = 0; i < 16; ++i) {
      const uint16_t code = block[k % 32 + i];
      half[i] = static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7F) << kShift);
    }
    uint16_t scale[16];
    for (int i = 0; i < 16; ++i) __builtin_memcpy(&scale[i], block + 32, 2);
    const simd::Vec d = simd::mul(simd::load_half(scale), simd::splat(kScale));
    return simd::mul(d, simd::load_half(half));
  }
  // A row is a whole number of blocks.
  static simd::Vec load_n(const uint8_t* row, int64_t k, int) { return load(row, k); }
};

using RowsF8E4M3 = RowsF8<7, 256>;
using RowsF8E5M2 = RowsF8<8, 1>;

inline void finish(const LinearArgs& a, int64_t t, int64_t r, float value) {
  if (a.bias != nullptr) value = value + a.bias[r];
  if (a.add != nullptr) value = value + a.add[t * a.stride + r];
  a.y[t * a.stride + r] = __builtin_fabsf(value) < oxibonsai::cpu::kTiny ? 0.0f : value;
}

// Rows r .. r + R - 1 of tokens t .. t + T - 1. kNext: the rows after them are fetched meanwhile.
template <class Rows, int R, int T, bool kNext>
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
      const uint8_t* row = w + i * a.row_bytes;
      if constexpr (T == 1) Rows::fetch_ahead(row, k);
      if constexpr (kNext) Rows::fetch(row + R * a.row_bytes, k);
      const Vec wi = Rows::load(row, k);
      for (int j = 0; j < T; ++j) acc[i][j] = fma(wi, load(x + j * a.cols + k), acc[i][j]);
    }
  }
  if (k < a.cols) {
    const int rest = static_cast<int>(a.cols - k);
    for (int i = 0; i < R; ++i) {
      const Vec wi = Rows::load_n(w + i * a.row_bytes, k, rest);
      for (int j = 0; j < T; ++j) acc[i][j] = fma(wi, load_n(x + j * a.cols + k, rest), acc[i][j]);
    }
  }
  for (int i = 0; i < R; ++i) {
    float sums[T];
    if constexpr (T == 4)  // of AVX-512 alone
      fold_sums(acc[i], sums);
    else
      for (int j = 0; j < T; ++j) sums[j] = fold_sum(acc[i][j]);
    for (int j = 0; j < T; ++j) finish(a, t + j, r + i, sums[j]);
  }
}

template <class Rows, int R, int T>
inline void dot_rows(const LinearArgs& a, int64_t r) {
  int64_t t = a.first_token;
  if (t + T <= a.last_token) {
    dot_block<Rows, R, T, true>(a, r, t);
    t += T;
  }
  for (; t + T <= a.last_token; t += T) dot_block<Rows, R, T, false>(a, r, t);
  for (; t < a.last_token; ++t) dot_block<Rows, R, 1, false>(a, r, t);
}

// The rows from r on, which are R at most.
template <class Rows, int R, int T>
inline void dot_rest(const LinearArgs& a, int64_t r) {
  if (a.last - r == R) return dot_rows<Rows, R, T>(a, r);
  if constexpr (R > 1) dot_rest<Rows, R - 1, T>(a, r);
}

template <class Rows>
void linear_float(const LinearArgs& a) {
  constexpr int R = simd::kDotRows;
  constexpr int T = simd::kDotTokens;
  int64_t r = a.first;
  if (a.last_token - a.first_token < T)
    for (; r < a.last; ++r) dot_rows<Rows, 1, T>(a, r);
  for (; r + R <= a.last; r += R) dot_rows<Rows, R, T>(a, r);
  if constexpr (R > 1) dot_rest<Rows, R - 1, T>(a, r);
}

}  // namespace
