// Linear layers over packed tiles (cpu/tile_format.h), for every integer type.
//
// Design: rows lie in lanes. A group of 32 weights is eight quads; a quad vector is multiplied by
// four activation bytes, broadcast, in one dot-product instruction (or its two- or
// three-instruction stand-in), so there is no fold across lanes anywhere and the float work, one
// convert and one fma, is paid once for 32 weights of all rows. Unpacked quads stay in registers
// for T tokens: a prompt pays for unpacking once in T. Budget for 32 weights x R rows, in vector
// instructions: unpack 15 (1 bit), 15 (2 bits), 12 (4 bits), 0 (8 bits); per token 8 dot products
// with their broadcasts folded into the operand, 1 convert, 1 fma, 1 correction by the sum of the
// activations where codes have an offset. Against other layouts: dot products along a row need a
// fold for each row and scale, 7 instructions for 32 weights; 16-entry tables (T-MAC) halve the
// 1-bit cost for one token but serve no prompt. Include after a tier's dot.h.

#include <cstdint>

#include "cpu/kernel_table.h"
#include "cpu/tile_format.h"

namespace {

using oxibonsai::cpu::kTileFormats;
using oxibonsai::cpu::LinearArgs;
using oxibonsai::cpu::TileFormat;
using oxibonsai::cpu::TileSections;
using oxibonsai::quant::QuantType;

constexpr TileFormat format_of(QuantType type) { return kTileFormats[static_cast<int>(type)]; }

constexpr int64_t padded_section(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Pointers into the sections of one tile.
struct Tile {
  const uint8_t* low;
  const uint8_t* high;
  const uint16_t* d;
  const uint16_t* m;
  const uint8_t* scale;
  const uint8_t* min;
};

template <QuantType kType>
inline Tile tile_at(const uint8_t* base, int64_t cols) {
  constexpr TileFormat f = format_of(kType);
  constexpr int R = dot::kRows;
  Tile t;
  t.low = base;
  t.high = t.low + padded_section(cols * R * f.low_bits / 8);
  const uint8_t* d = t.high + padded_section(cols * R * f.high_bits / 8);
  const int64_t halves = padded_section(cols / f.group * R * 2);
  const uint8_t* m = d + halves;
  t.d = reinterpret_cast<const uint16_t*>(d);
  t.m = reinterpret_cast<const uint16_t*>(m);
  t.scale = m + (f.minima ? halves : 0);
  t.min = t.scale;
  if constexpr (f.scale_group != 0) t.min += padded_section(cols / f.scale_group * R);
  return t;
}

// The eight quads of 32 weights, as unsigned codes (times two for 1-bit weights).
template <int kLowBits>
inline void unpack_low(const uint8_t* p, dot::Codes* w) {
  using namespace dot;
  constexpr int kBytes = 4 * kRows;
  if constexpr (kLowBits == 1) {
    const Codes v = load(p);
    const Codes two = byte_splat(2);
    w[0] = band(shift_left<1>(v), two);
    w[1] = band(v, two);
    w[2] = band(shift_right<1>(v), two);
    w[3] = band(shift_right<2>(v), two);
    w[4] = band(shift_right<3>(v), two);
    w[5] = band(shift_right<4>(v), two);
    w[6] = band(shift_right<5>(v), two);
    w[7] = band(shift_right<6>(v), two);
  } else if constexpr (kLowBits == 2) {
    const Codes three = byte_splat(3);
    for (int half = 0; half < 2; ++half) {
      const Codes v = load(p + half * kBytes);
      w[4 * half] = band(v, three);
      w[4 * half + 1] = band(shift_right<2>(v), three);
      w[4 * half + 2] = band(shift_right<4>(v), three);
      w[4 * half + 3] = band(shift_right<6>(v), three);
    }
  } else if constexpr (kLowBits == 4) {
    const Codes fifteen = byte_splat(15);
    for (int pair = 0; pair < 4; ++pair) {
      const Codes v = load(p + pair * kBytes);
      w[2 * pair] = band(v, fifteen);
      w[2 * pair + 1] = band(shift_right<4>(v), fifteen);
    }
  } else {
    for (int q = 0; q < 8; ++q) w[q] = load(p + q * kBytes);
  }
}

// Puts the bits above a nibble in place.
template <int kHighBits>
inline void unpack_high(const uint8_t* p, dot::Codes* w) {
  using namespace dot;
  constexpr int kBytes = 4 * kRows;
  if constexpr (kHighBits == 1) {
    const Codes v = load(p);
    const Codes bit = byte_splat(16);
    w[0] = bor(w[0], band(shift_left<4>(v), bit));
    w[1] = bor(w[1], band(shift_left<3>(v), bit));
    w[2] = bor(w[2], band(shift_left<2>(v), bit));
    w[3] = bor(w[3], band(shift_left<1>(v), bit));
    w[4] = bor(w[4], band(v, bit));
    w[5] = bor(w[5], band(shift_right<1>(v), bit));
    w[6] = bor(w[6], band(shift_right<2>(v), bit));
    w[7] = bor(w[7], band(shift_right<3>(v), bit));
  } else if constexpr (kHighBits == 2) {
    const Codes bits = byte_splat(0x30);
    for (int half = 0; half < 2; ++half) {
      const Codes v = load(p + half * kBytes);
      w[4 * half] = bor(w[4 * half], band(shift_left<4>(v), bits));
      w[4 * half + 1] = bor(w[4 * half + 1], band(shift_left<2>(v), bits));
      w[4 * half + 2] = bor(w[4 * half + 2], band(v, bits));
      w[4 * half + 3] = bor(w[4 * half + 3], band(shift_right<2>(v), bits));
    }
  }
}

template <QuantType kType>
inline void unpack(const Tile& tile, int64_t group, dot::Codes* w) {
  constexpr TileFormat f = format_of(kType);
  constexpr int kBytes = 4 * dot::kRows;
  unpack_low<f.low_bits>(tile.low + group * f.low_bits * kBytes, w);
  if constexpr (f.high_bits != 0)
    unpack_high<f.high_bits>(tile.high + group * f.high_bits * kBytes, w);
}

constexpr int largest_code(TileFormat f) {
  return f.low_bits == 1 ? 2 : (1 << (f.low_bits + f.high_bits)) - 1;
}

// Signed 8-bit dot products take the codes of Q8_0 without their offset.
constexpr int code_offset(TileFormat f) {
  return f.low_bits == 8 && !dot::kUnsignedBytes ? 0 : f.offset;
}

// The weighted sum of one group of 32 for one token: `inner` takes fma(scale_x, float(isum),
// inner).
template <QuantType kType, bool kSplit>
inline dot::Floats add_group(const Tile& tile, const dot::Codes* w, const LinearArgs& a, int64_t t,
                             int64_t group, dot::Floats inner) {
  using namespace dot;
  constexpr TileFormat f = format_of(kType);
  constexpr int kMax = largest_code(f);
  constexpr int kOffset = code_offset(f);
  const int64_t groups = a.cols / 32;
  const int8_t* x = a.x.q + t * a.cols + 32 * group;
  Sums isum;
  if constexpr (f.scale_group == 16) {
    const int32_t* sum16 = a.x.sum16 + 2 * (t * groups + group);
    const Sums one = dot_quads<kMax, 4, kSplit>(w, x, sum_splat(-kOffset * sum16[0]));
    const Sums two = dot_quads<kMax, 4, kSplit>(w + 4, x + 16, sum_splat(-kOffset * sum16[1]));
    const uint8_t* scale = tile.scale + 2 * group * kRows;
    isum = sum_add(sum_mul(load_signed(scale), one), sum_mul(load_signed(scale + kRows), two));
  } else {
    const int32_t start = kOffset == 0 ? 0 : -kOffset * a.x.sum[t * groups + group];
    isum = dot_quads<kMax, 8, kSplit>(w, x, sum_splat(start));
    if constexpr (f.scale_group == 32)
      isum = sum_mul(load_unsigned(tile.scale + group * kRows), isum);
  }
  return fma(splat(a.x.scale[t * groups + group]), to_float(isum), inner);
}

inline void store_rows(const LinearArgs& a, int64_t t, int64_t r, dot::Floats value) {
  using namespace dot;
  float* y = a.y + t * a.stride + r;
  if (r + kRows <= a.last) {
    if (a.bias != nullptr) value = add(value, load_floats(a.bias + r));
    if (a.add != nullptr) value = add(value, load_floats(a.add + t * a.stride + r));
    store_floats(y, value);
    return;
  }
  float rows[kRows];
  store_floats(rows, value);
  for (int i = 0; r + i < a.last; ++i) {
    float v = rows[i];
    if (a.bias != nullptr) v = v + a.bias[r + i];
    if (a.add != nullptr) v = v + a.add[t * a.stride + r + i];
    y[i] = v;
  }
}

// One tile against T tokens from t.
template <QuantType kType, int T>
inline void tile_tokens(const LinearArgs& a, const Tile& tile, int64_t r, int64_t t) {
  using namespace dot;
  constexpr TileFormat f = format_of(kType);
  constexpr int kGroups = f.group / 32;
  const int64_t groups = a.cols / 32;
  Floats row[T];
  for (int j = 0; j < T; ++j) row[j] = splat(0.0f);
  for (int64_t block = 0; block < groups / kGroups; ++block) {
    Floats inner[T], low[T];
    for (int j = 0; j < T; ++j) inner[j] = low[j] = splat(0.0f);
    for (int g = 0; g < kGroups; ++g) {
      const int64_t group = block * kGroups + g;
      Codes w[8];
      unpack<kType>(tile, group, w);
#pragma GCC unroll 8
      for (int j = 0; j < T; ++j)
        inner[j] = add_group<kType, T == 1>(tile, w, a, t + j, group, inner[j]);
      if constexpr (f.group_minima) {
        const Floats min = to_float(load_unsigned(tile.min + group * kRows));
#pragma GCC unroll 8
        for (int j = 0; j < T; ++j)
          low[j] = fma(min, splat(a.x.offset[(t + j) * groups + group]), low[j]);
      }
    }
    const Floats d = load_halves(tile.d + block * kRows);
    for (int j = 0; j < T; ++j) row[j] = fma(d, inner[j], row[j]);
    if constexpr (f.minima) {
      const Floats m = load_halves(tile.m + block * kRows);
      for (int j = 0; j < T; ++j) {
        const Floats by = f.group_minima ? low[j] : splat(a.x.offset[(t + j) * groups + block]);
        row[j] = fma(m, by, row[j]);
      }
    }
  }
  for (int j = 0; j < T; ++j) store_rows(a, t + j, r, row[j]);
}

// Tokens of a panel stay in the second-level cache while every tile passes over them.
constexpr int64_t kPanelTokens = 128;

template <QuantType kType>
void linear_tiles(const LinearArgs& a) {
  constexpr int kMany = format_of(kType).group_minima ? dot::kMaxTokens / 2 : dot::kMaxTokens;
  for (int64_t panel = 0; panel < a.tokens; panel += kPanelTokens) {
    const int64_t end = panel + kPanelTokens < a.tokens ? panel + kPanelTokens : a.tokens;
    for (int64_t r = a.first; r < a.last; r += dot::kRows) {
      const Tile tile = tile_at<kType>(a.weight + r / dot::kRows * a.tile_bytes, a.cols);
      int64_t t = panel;
      for (; t + kMany <= end; t += kMany) tile_tokens<kType, kMany>(a, tile, r, t);
      if constexpr (kMany > 4)
        for (; t + 4 <= end; t += 4) tile_tokens<kType, 4>(a, tile, r, t);
      if constexpr (kMany > 2)
        for (; t + 2 <= end; t += 2) tile_tokens<kType, 2>(a, tile, r, t);
      for (; t < end; ++t) tile_tokens<kType, 1>(a, tile, r, t);
    }
  }
}

}  // namespace
