// Linear layers over float weights (F32, F16, BF16, F8), read from the file's own rows: for each
// row a 16-lane fma reduction (docs/arithmetic.md, rule 2). A block of simd::kDotRows rows by
// simd::kDotTokens tokens shares its loads; the order of a row's sums doesn't depend on the block.
//
// Budget for 16 columns of a block of R rows and T tokens: R loads that widen, T loads and R * T
// fmas, whose sums fill the registers (24 of 32 with 512 bits, 12 of 16 with 256; 4 x 4 spilled
// there and had two thirds of the speed). At the end of a block the sums of a token fold into one
// vector where a tier has that, and bias, residual and store follow for all rows at once; loops
// over a block are unrolled by hand, or the sums would go through memory. A few rows stay in the
// first-level cache while the panel's tokens pass over them from the second, and the next rows,
// which come from further away, are fetched meanwhile, a share with each block. With less than T
// tokens the weights' memory is the limit, and rows are taken one by one, as a single stream: on
// Zen 5 two threads reach 95 % of its bandwidth so, 80 % with R streams. Share of the fmas' peak,
// on Zen 5, F16, 4,096 x 1,024, one thread: 84 % so; 77 % with sums that are finished one by one
// and next rows fetched during the first block alone; 57 % with 4 x 4 and nothing fetched; 50 %
// with tokens that stay while rows pass. Include after a tier's simd.h.

#include <cstdint>

#include "cpu/body/fetch.h"
#include "cpu/body/flush.h"
#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::LinearArgs;

// What a row holds at column k, and at its last n columns. fetch_ahead() is for one token, whose
// weights stream from memory.
struct RowsF32 {
  static simd::Vec load(const uint8_t* row, int64_t k) { return simd::load(at(row, k)); }
  static simd::Vec load_n(const uint8_t* row, int64_t k, int n) {
    return simd::load_n(at(row, k), n);
  }
  static void fetch_ahead(const uint8_t* row, int64_t k) {
    __builtin_prefetch(row + 4 * k + kAhead, 0, 2);
  }
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

// Rows r .. r + R - 1 of token t, whose sums are folded.
template <int R>
inline void finish_rows(const LinearArgs& a, int64_t t, int64_t r, const simd::Vec (&acc)[R]) {
  using namespace simd;
  if constexpr (kDotTokens == 4 && R > 1) {  // AVX-512
    Vec value = fold_sums(acc);
    if (a.bias != nullptr) value = add(value, load_n(a.bias + r, R));
    if (a.add != nullptr) value = add(value, load_n(a.add + t * a.stride + r, R));
    store_n(a.y + t * a.stride + r, flush_tiny(value), R);
  } else {
    for (int i = 0; i < R; ++i) finish(a, t, r + i, fold_sum(acc[i]));
  }
}

// Rows r .. r + R - 1 of tokens t .. t + T - 1.
template <class Rows, int R, int T>
inline void dot_block(const LinearArgs& a, int64_t r, int64_t t) {
  using namespace simd;
  Vec acc[T][R];
#pragma GCC unroll 8
  for (int j = 0; j < T; ++j)
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) acc[j][i] = zero();
  const uint8_t* w = a.weight + r * a.row_bytes;
  const float* x = a.xf + t * a.cols;
  int64_t k = 0;
  for (; k + kLanes <= a.cols; k += kLanes) {
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const uint8_t* row = w + i * a.row_bytes;
      if constexpr (T == 1) Rows::fetch_ahead(row, k);
      const Vec wi = Rows::load(row, k);
#pragma GCC unroll 8
      for (int j = 0; j < T; ++j) acc[j][i] = fma(wi, load(x + j * a.cols + k), acc[j][i]);
    }
  }
  if (k < a.cols) {
    const int rest = static_cast<int>(a.cols - k);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const Vec wi = Rows::load_n(w + i * a.row_bytes, k, rest);
#pragma GCC unroll 8
      for (int j = 0; j < T; ++j) acc[j][i] = fma(wi, load_n(x + j * a.cols + k, rest), acc[j][i]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < T; ++j) finish_rows(a, t + j, r, acc[j]);
}

// During each block of tokens a share of the next rows is fetched, which come from further away.
template <class Rows, int R, int T>
inline void dot_rows(const LinearArgs& a, int64_t r) {
  int64_t t = a.first_token;
  const uint8_t* next = a.weight + (r + R) * a.row_bytes;
  const uint8_t* end = next + (T > 1 ? R * a.row_bytes : 0);
  const int64_t blocks = (a.last_token - t) / T;
  const int64_t share = blocks > 0 ? (end - next) / blocks + 1 : 0;
  for (; t + T <= a.last_token; t += T) {
    const uint8_t* stop = end - next > share ? next + share : end;
    for (; next < stop; next += 64) __builtin_prefetch(next, 0, 2);
    dot_block<Rows, R, T>(a, r, t);
  }
  for (; t < a.last_token; ++t) dot_block<Rows, R, 1>(a, r, t);
}

// `count` rows from r on, R at most.
template <class Rows, int R, int T>
inline void dot_some(const LinearArgs& a, int64_t r, int64_t count) {
  if (count == R) return dot_rows<Rows, R, T>(a, r);
  if constexpr (R > 1) dot_some<Rows, R - 1, T>(a, r, count);
}

template <class Rows>
void linear_float(const LinearArgs& a) {
  constexpr int R = simd::kDotRows;
  constexpr int T = simd::kDotTokens;
  int64_t r = a.first;
  if (a.last_token - a.first_token < T)
    for (; r < a.last; ++r) dot_rows<Rows, 1, T>(a, r);
  while (r < a.last) {
    const int64_t blocks = (a.last - r + R - 1) / R;
    const int64_t count = (a.last - r + blocks - 1) / blocks;  // the last blocks alike, none narrow
    dot_some<Rows, R, T>(a, r, count);
    r += count;
  }
}

}  // namespace
