// Linear layers over 1-bit tiles (cpu/tile_format.h), by table lookup.
//
// Design: with int8 activations x0..x3, the sum over four 1-bit weights, sum of (2b - 1) x, is one
// of 16 numbers. With V = the sum of |x| where the weight's sign agrees with x's, it is
// 2V - sum |x|, and V < 512 is held as high * 16 + low, two bytes of at most 30: eight of them, the
// 32 weights of a group, add up in a byte. A lookup instruction serves as many rows as it has
// bytes. cols / 4 tables a token are made once for all rows (make_tables). Budget for 32 weights x
// R rows, R the bytes of a vector: 16 lookups, 16 adds, 12 to cut bytes into nibbles, and to widen:
// 2 interleaves, 2 multiply-adds, 4 interleaves with the exponent of 2^23 that make floats, 4
// subtractions of the bias, 4 fmas: 60, where masks and dot products (cpu/body/linear_tiles.h, at
// one bit) take 28 for R / 4 rows. The nibbles stay in registers for T tokens. Include after a
// tier's dot.h and bytes.h.

#include <cstdint>

#include "cpu/body/fetch.h"
#include "cpu/body/store_rows.h"
#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::kTableBytes;
using oxibonsai::cpu::LinearArgs;

constexpr int kBlockCodes = 16 * bytes::kRows;
constexpr int kBlockBytes = 18 * bytes::kRows;

// 32 weights of every row, times one token: F vectors of dot::kRows floats.
inline void lookup_group(const bytes::Vec* index, const uint8_t* table, int32_t minus_abs,
                         dot::Floats* isum) {
  using namespace bytes;
  Vec low = lookup(load_table(table), index[0]);
  Vec high = lookup(load_table(table + kTableBytes / 2), index[0]);
#pragma GCC unroll 8
  for (int q = 1; q < 8; ++q) {
    low = add(low, lookup(load_table(table + 16 * q), index[q]));
    high = add(high, lookup(load_table(table + kTableBytes / 2 + 16 * q), index[q]));
  }
  weigh(low, high, isum);
  // 2^23 + sum |x|: an integer below 2^23 added to the bits of 2^23.
  const dot::Floats bias =
      dot::as_floats(dot::sum_sub(dot::sum_splat(0x4B000000), dot::sum_splat(minus_abs)));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) isum[i] = dot::sub(isum[i], bias);
}

// One tile against T tokens from t.
template <int T>
inline void tile_tokens(const LinearArgs& a, const uint8_t* tile, int64_t r, int64_t t) {
  using namespace dot;
  const int64_t groups = a.cols / 32;
  Floats row[T][4];
  for (int j = 0; j < T; ++j)
    for (int i = 0; i < 4; ++i) row[j][i] = splat(0.0f);
  const uint8_t* block = tile;
  for (int64_t at = 0; at < groups; at += 4, block += kBlockBytes) {
    Floats inner[T][4];
#pragma GCC unroll 4
    for (int j = 0; j < T; ++j)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) inner[j][i] = splat(0.0f);
    for (int g = 0; g < 4; ++g) {
      const uint8_t* codes = block + g * (kBlockCodes / 4);
      fetch_ahead<kBlockBytes / 4>(codes);
      bytes::Vec index[8];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        const bytes::Vec c = bytes::load(codes + v * bytes::kRows);
        index[v] = bytes::low_nibbles(c);
        index[v + 4] = bytes::high_nibbles(c);
      }
#pragma GCC unroll 4
      for (int j = 0; j < T; ++j) {
        const int64_t group = (t + j) * groups + at + g;
        Floats isum[4];
        lookup_group(index, a.x.tables + group * kTableBytes, a.x.minus_abs[group], isum);
        const Floats scale = splat(a.x.scale[group]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) inner[j][i] = fma(scale, isum[i], inner[j][i]);
      }
    }
    const auto* d = reinterpret_cast<const uint16_t*>(block + kBlockCodes);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Floats scale = load_halves(d + i * kRows);
#pragma GCC unroll 4
      for (int j = 0; j < T; ++j) row[j][i] = fma(scale, inner[j][i], row[j][i]);
    }
  }
  for (int j = 0; j < T; ++j)
    for (int i = 0; i < 4 && r + i * kRows < a.last; ++i)
      store_rows(a, t + j, r + i * kRows, row[j][i]);
}

void linear_1bit(const LinearArgs& a) {
  const int64_t end = a.last_token;
  for (int64_t r = a.first; r < a.last; r += bytes::kRows) {
    const uint8_t* tile = a.weight + r / bytes::kRows * a.tile_bytes;
    int64_t t = a.first_token;
    for (; t + 4 <= end; t += 4) tile_tokens<4>(a, tile, r, t);
    for (; t + 2 <= end; t += 2) tile_tokens<2>(a, tile, r, t);
    if (t < end) tile_tokens<1>(a, tile, r, t);
  }
}

}  // namespace
