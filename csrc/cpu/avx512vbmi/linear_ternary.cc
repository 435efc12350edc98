// Linear layers over base-3 digits in triples of rows (cpu/tile_format.h), with VBMI and VNNI.
//
// Design: a number of five bits is the digits of three rows, 16 rows apart, and three lookups in
// tables of 27 make the codes of three tiles of it, as cpu/body/linear_tiles.h has them. vpermb
// ignores the upper two bits of a byte, and tables repeated ignore bit 5: so the numbers of five
// quads in eight need no unpacking, the others 11 shifts and selections together. Budget for a quad
// of 3 x 16 rows, in vector instructions: 1.4 to unpack and 3 lookups, 1.5 a dot product, where
// codes of two bits take 1.75; and a broadcast of activations serves three dot products. A block of
// 128 weights takes 1.79 bits a weight instead of 2.125.
//
// Lines are used once, and fetched to the first-level cache past the second, from which the
// hardware does not bring the five of a group in time. Zen 4, 240 MB of weights, two threads, one
// token, G multiply-adds/s, in processes whose memory reads 35 and 60 GB/s:
//   2 bits                            125   218
//   triples, 12 KiB ahead to L2       119
//            2 to 4 KiB ahead to L1   159   173
//            the same, past L2        160   230
// Items of 96 rows generate 4 % more tokens than those of 48 (8B, either memory).

#include "cpu/avx512vnni/dot.h"
//
#include "cpu/body/fetch.h"
#include "cpu/body/fill.h"
#include "cpu/body/store_rows.h"
#include "cpu/tile_format.h"

namespace oxibonsai::cpu::avx512vbmi {
namespace {

using dot::Codes;
using dot::Floats;
using dot::Sums;

constexpr int kTiles = 3;
constexpr int kTileRows = kTiles * dot::kRows;
// Of a group of 32 columns.
constexpr int kGroupBytes = 5 * 64;
constexpr int kNearAhead = 4096;
constexpr int kItemTiles = 2;

// By number below 27, twice: the digit of one tile's row.
struct DigitTable {
  alignas(64) uint8_t at[64];
};

constexpr DigitTable digit_table(int power) {
  DigitTable table{};
  for (int i = 0; i < 64; ++i) table.at[i] = static_cast<uint8_t>(i % 32 / power % 3);
  return table;
}

constexpr DigitTable kDigits[kTiles] = {digit_table(1), digit_table(3), digit_table(9)};

inline Codes digits_of(int tile) { return _mm512_load_si512(kDigits[tile].at); }

// By bit: from a where the mask has ones, else from b.
inline Codes select(int mask, Codes a, Codes b) {
  return _mm512_ternarylogic_epi32(dot::byte_splat(mask), a, b, 0xCA);
}

// The numbers of the eight quads of a group, in the low five bits of each byte.
inline void load_numbers(const uint8_t* group, Codes* number) {
#pragma GCC unroll 5
  for (int v = 0; v < 5; ++v) number[v] = dot::load(group + 64 * v);
  number[5] = select(7, dot::shift_right<5>(number[0]), dot::shift_right<3>(number[1]));
  number[6] = select(7, dot::shift_right<5>(number[2]), dot::shift_right<3>(number[3]));
  const Codes four = select(7, dot::shift_right<5>(number[4]), dot::shift_right<2>(number[1]));
  number[7] = select(15, four, dot::shift_right<1>(number[3]));
}

// A block against T tokens, whose groups of activations begin at `first`, `stride` apart: adds to
// `row` the sum of each tile and token.
template <int kGroups, int T>
inline void add_block(const uint8_t* block, const QuantizedRows& x, int64_t first, int64_t stride,
                      Floats (&row)[kTiles][T]) {
  Floats inner[kTiles][T];
#pragma GCC unroll 3
  for (int n = 0; n < kTiles; ++n)
#pragma GCC unroll 4
    for (int j = 0; j < T; ++j) inner[n][j] = dot::splat(0.0f);
  for (int g = 0; g < kGroups; ++g) {
    const uint8_t* group = block + g * kGroupBytes;
    fetch_ahead<kGroupBytes + 2 * kTileRows / kGroups, 0>(group, kNearAhead);
    const int64_t at = first + g;
    Sums sum[kTiles][T];
#pragma GCC unroll 4
    for (int j = 0; j < T; ++j)
#pragma GCC unroll 3
      for (int n = 0; n < kTiles; ++n) sum[n][j] = dot::sum_splat(x.minus_sum[at + j * stride]);
    Codes number[8];
    load_numbers(group, number);
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {
      Codes code[kTiles];
#pragma GCC unroll 3
      for (int n = 0; n < kTiles; ++n) code[n] = _mm512_permutexvar_epi8(number[q], digits_of(n));
#pragma GCC unroll 4
      for (int j = 0; j < T; ++j) {
        const Codes four = dot::quad_splat(x.q + 32 * (at + j * stride) + 4 * q);
#pragma GCC unroll 3
        for (int n = 0; n < kTiles; ++n) sum[n][j] = _mm512_dpbusd_epi32(sum[n][j], code[n], four);
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < T; ++j)
#pragma GCC unroll 3
      for (int n = 0; n < kTiles; ++n)
        inner[n][j] =
            dot::fma(dot::splat(x.scale[at + j * stride]), dot::to_float(sum[n][j]), inner[n][j]);
  }
  const auto* d = reinterpret_cast<const uint16_t*>(block + kGroups * kGroupBytes);
#pragma GCC unroll 3
  for (int n = 0; n < kTiles; ++n) {
    const Floats scale = dot::load_halves(d + n * dot::kRows);
#pragma GCC unroll 4
    for (int j = 0; j < T; ++j) row[n][j] = dot::fma(scale, inner[n][j], row[n][j]);
  }
}

// A tile against T tokens from t.
template <int kGroups, int T>
inline void tile_tokens(const LinearArgs& a, const uint8_t* tile, int64_t r, int64_t t) {
  constexpr int kBlockBytes = kGroups * kGroupBytes + 2 * kTileRows;
  const int64_t groups = a.cols / 32;
  Floats row[kTiles][T];
  for (int n = 0; n < kTiles; ++n)
    for (int j = 0; j < T; ++j) row[n][j] = dot::splat(0.0f);
  const uint8_t* block = tile;
  for (int64_t at = 0; at < groups; at += kGroups, block += kBlockBytes)
    add_block<kGroups, T>(block, a.x, t * groups + at, groups, row);
  for (int n = 0; n < kTiles && r + n * dot::kRows < a.last; ++n)
    for (int j = 0; j < T; ++j) store_rows(a, t + j, r + n * dot::kRows, row[n][j]);
}

template <int kGroups>
void linear_triples(const LinearArgs& a) {
  for (int64_t r = a.first; r < a.last; r += kTileRows) {
    const uint8_t* tile = a.weight + r / kTileRows * a.tile_bytes;
    int64_t t = a.first_token;
    for (; t + 4 <= a.last_token; t += 4) tile_tokens<kGroups, 4>(a, tile, r, t);
    switch (a.last_token - t) {
      case 3:
        tile_tokens<kGroups, 3>(a, tile, r, t);
        break;
      case 2:
        tile_tokens<kGroups, 2>(a, tile, r, t);
        break;
      case 1:
        tile_tokens<kGroups, 1>(a, tile, r, t);
        break;
      default:
        break;
    }
  }
}

}  // namespace

void fill_linear_ternary(KernelTable& table) {
  using quant::QuantType;
  table.linear[static_cast<int>(QuantType::kPTQ1_0)] = {
      &linear_triples<4>, kTileRows, TileForm::kRowTriples, kItemTiles * kTileRows};
  table.linear[static_cast<int>(QuantType::kTQ1_0)] = {
      &linear_triples<8>, kTileRows, TileForm::kRowTriples, kItemTiles * kTileRows};
}

}  // namespace oxibonsai::cpu::avx512vbmi
