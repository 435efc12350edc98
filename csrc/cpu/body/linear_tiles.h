// Linear layers over packed tiles (cpu/tile_format.h), for every integer type of two bits or more.
//
// Design: rows lie in lanes. A group of 32 weights is eight quads; a quad vector is multiplied by
// four activation bytes, broadcast, in one dot-product instruction (or its two- or
// three-instruction substitute), so there is no reduction across lanes and the float work, one
// convert and one fma, is paid once for 32 weights of all rows. Unpacked quads stay in registers
// for T tokens: a prompt pays for unpacking once in T. Budget for 32 weights x R rows, in vector
// instructions: unpack 14 (2 bits), 12 (4 bits), 20 (4-bit codes of a codebook), 0 (8 bits); per
// token 8 dot products with their broadcasts folded into the operand, 1 load of the starting sum, 1
// convert, 1 fma. Against other layouts: dot products along a row need a reduction for each row and
// scale, 7 instructions for 32 weights. A block is one stream of a few hundred bytes, fetched
// kAhead bytes before its use: with scales in a section of their own, decode stalled on them for
// two fifths of its time. Include after a tier's dot.h.

#include <cstdint>

#include "cpu/body/fetch.h"
#include "cpu/body/store_rows.h"
#include "cpu/kernel_table.h"
#include "cpu/tile_format.h"

namespace {

using oxibonsai::cpu::KernelTable;
using oxibonsai::cpu::kTileFormats;
using oxibonsai::cpu::LinearArgs;
using oxibonsai::cpu::QuantizedRows;
using oxibonsai::cpu::TileFormat;
using oxibonsai::quant::QuantType;

constexpr TileFormat format_of(QuantType type) { return kTileFormats[static_cast<int>(type)]; }

// Where the parts of a block lie, in bytes (cpu/tile_format.h).
template <QuantType kType>
struct Block {
  static constexpr TileFormat f = format_of(kType);
  static constexpr int R = dot::kRows;
  static constexpr int kLow = 0;
  static constexpr int kHigh = kLow + f.group * R * f.low_bits / 8;
  static constexpr int kD = kHigh + f.group * R * f.high_bits / 8;
  static constexpr int kM = kD + f.d_bytes() * R;
  static constexpr int kScale = kM + (f.minima ? 2 * R : 0);
  static constexpr int kMin = kScale + (f.scale_group != 0 ? f.group / f.scale_group * R : 0);
  static constexpr int kBytes = kMin + (f.group_minima ? f.group / f.scale_group * R : 0);
};

// The low bits of quad q of 32 weights, as unsigned codes.
template <int kLowBits>
inline dot::Codes low_quad(const uint8_t* p, int q) {
  using namespace dot;
  constexpr int kShared = 8 / kLowBits;  // quads of a vector
  const Codes v = load(p + q / kShared * 4 * kRows);
  if constexpr (kLowBits == 8) return v;
  const Codes mask = byte_splat((1 << kLowBits) - 1);
  switch (q % kShared * kLowBits) {
    case 0:
      return band(v, mask);
    case 2:
      return band(shift_right<2>(v), mask);
    case 4:
      return band(shift_right<4>(v), mask);
    default:
      return band(shift_right<6>(v), mask);
  }
}

// Bit `from` of each byte, and those above it, to bit `to`; others are left for a mask.
template <int from, int to>
inline dot::Codes move_bits(dot::Codes v) {
  if constexpr (from < to) return dot::shift_left<to - from>(v);
  if constexpr (from > to) return dot::shift_right<from - to>(v);
  return v;
}

// Puts the bits above the low ones, of which there are `to`, in place.
template <int kHighBits, int to>
inline void unpack_high(const uint8_t* p, dot::Codes* w) {
  using namespace dot;
  constexpr int kBytes = 4 * kRows;
  const Codes mask = byte_splat(((1 << kHighBits) - 1) << to);
  if constexpr (kHighBits == 1) {
    const Codes v = load(p);
    w[0] = bor(w[0], band(move_bits<0, to>(v), mask));
    w[1] = bor(w[1], band(move_bits<1, to>(v), mask));
    w[2] = bor(w[2], band(move_bits<2, to>(v), mask));
    w[3] = bor(w[3], band(move_bits<3, to>(v), mask));
    w[4] = bor(w[4], band(move_bits<4, to>(v), mask));
    w[5] = bor(w[5], band(move_bits<5, to>(v), mask));
    w[6] = bor(w[6], band(move_bits<6, to>(v), mask));
    w[7] = bor(w[7], band(move_bits<7, to>(v), mask));
  } else if constexpr (kHighBits == 2) {
    for (int half = 0; half < 2; ++half) {
      const Codes v = load(p + half * kBytes);
      w[4 * half] = bor(w[4 * half], band(move_bits<0, to>(v), mask));
      w[4 * half + 1] = bor(w[4 * half + 1], band(move_bits<2, to>(v), mask));
      w[4 * half + 2] = bor(w[4 * half + 2], band(move_bits<4, to>(v), mask));
      w[4 * half + 3] = bor(w[4 * half + 3], band(move_bits<6, to>(v), mask));
    }
  }
}

struct UnsignedValues {
  uint8_t at[16];
};

constexpr UnsignedValues unsigned_values(TileFormat f) {
  UnsignedValues table{};
  for (int i = 0; i < 16; ++i) table.at[i] = static_cast<uint8_t>(f.codebook[i] + f.offset);
  return table;
}

// A code to what it stands for, made unsigned.
template <QuantType kType>
inline dot::Codes value_of(dot::Codes code) {
  static constexpr UnsignedValues kTable = unsigned_values(format_of(kType));
  return dot::lookup(dot::load_table(kTable.at), code);
}

// The eight quads of group g of a block, as unsigned codes or values.
template <QuantType kType>
inline void unpack(const uint8_t* block, int g, dot::Codes* w) {
  constexpr TileFormat f = format_of(kType);
  constexpr int kBytes = 4 * dot::kRows;
  const uint8_t* low = block + Block<kType>::kLow + g * f.low_bits * kBytes;
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) w[q] = low_quad<f.low_bits>(low, q);
  if constexpr (f.high_bits != 0)
    unpack_high<f.high_bits, f.low_bits>(block + Block<kType>::kHigh + g * f.high_bits * kBytes, w);
  if constexpr (f.codebook != nullptr) {
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) w[q] = value_of<kType>(w[q]);
  }
}

// Quad q of group g alone, of types without high bits.
template <QuantType kType>
inline dot::Codes unpack_quad(const uint8_t* block, int g, int q) {
  constexpr TileFormat f = format_of(kType);
  static_assert(f.high_bits == 0);
  const uint8_t* low = block + Block<kType>::kLow + g * f.low_bits * 4 * dot::kRows;
  const dot::Codes code = low_quad<f.low_bits>(low, q);
  if constexpr (f.codebook != nullptr) return value_of<kType>(code);
  return code;
}

constexpr int largest_code(TileFormat f) {
  return f.codebook != nullptr ? 2 * f.offset - 1 : (1 << (f.low_bits + f.high_bits)) - 1;
}

// Signed 8-bit dot products take full bytes without their offset.
constexpr int code_offset(TileFormat f) {
  return largest_code(f) == 255 && !dot::kUnsignedBytes ? 0 : f.offset;
}

inline const uint16_t* halves(const uint8_t* p) { return reinterpret_cast<const uint16_t*>(p); }
inline const float* floats(const uint8_t* p) { return reinterpret_cast<const float*>(p); }

// 2^(exponent - 128) of a byte a row, below 2 a subnormal number (quant/fp4_scales.h): of the bits
// of either kind of number the right ones are the larger ones.
inline dot::Floats load_exponents(const uint8_t* p) {
  using namespace dot;
  const Sums exponent = load_unsigned(p);
  const Sums normal = sum_shift_left<23>(sum_add(exponent, sum_splat(-1)));
  const Sums subnormal = sum_shift_left<21>(sum_add(exponent, sum_splat(1)));
  return as_floats(sum_max(normal, subnormal));
}

// The scales of a block that has one a row.
template <QuantType kType>
inline dot::Floats load_d(const uint8_t* block) {
  constexpr TileFormat f = format_of(kType);
  const uint8_t* d = block + Block<kType>::kD;
  if constexpr (f.exponents) return load_exponents(d);
  return f.wide_group != 0 ? dot::load_floats(floats(d)) : dot::load_halves(halves(d));
}

// offset * minus_sum, the start of a sum of codes; offsets are powers of two.
template <int kOffset>
inline dot::Sums start_sum(const int32_t* minus_sum) {
  using namespace dot;
  if constexpr (kOffset == 0)
    return sum_splat(0);
  else if constexpr (kOffset == 1)
    return sum_splat(*minus_sum);
  else
    return sum_shift_left<__builtin_ctz(kOffset)>(sum_splat(*minus_sum));
}

// The integer sums of the two halves of 32 weights, for one token.
template <QuantType kType, bool kSplit>
inline void half_sums(const dot::Codes* w, const int8_t* q, const int32_t* minus_sum16,
                      dot::Sums* out) {
  constexpr int kMax = largest_code(format_of(kType));
  constexpr int kOffset = code_offset(format_of(kType));
  for (int i = 0; i < 2; ++i)
    out[i] =
        dot::dot_quads<kMax, 4, kSplit>(w + 4 * i, q + 16 * i, start_sum<kOffset>(minus_sum16 + i));
}

// The weighted sum of group g of a block for one token, whose groups of activations begin at x:
// `inner` takes fma(scale_x, float(isum), inner).
template <QuantType kType, bool kSplit>
inline dot::Floats add_group(const uint8_t* block, int g, const dot::Codes* w,
                             const QuantizedRows& x, int64_t group, dot::Floats inner) {
  using namespace dot;
  constexpr TileFormat f = format_of(kType);
  constexpr int kMax = largest_code(f);
  constexpr int kOffset = code_offset(f);
  const int8_t* q = x.q + 32 * group;
  Sums isum;
  if constexpr (f.scale_group == 16) {
    Sums half[2];
    half_sums<kType, kSplit>(w, q, x.minus_sum16 + 2 * group, half);
    const uint8_t* scale = block + Block<kType>::kScale + 2 * g * kRows;
    isum =
        sum_add(sum_mul(load_signed(scale), half[0]), sum_mul(load_signed(scale + kRows), half[1]));
  } else {
    isum = dot_quads<kMax, 8, kSplit>(w, q, start_sum<kOffset>(x.minus_sum + group));
    if constexpr (f.scale_group == 32)
      isum = sum_mul(load_signed(block + Block<kType>::kScale + g * kRows), isum);
  }
  return fma(splat(x.scale[group]), to_float(isum), inner);
}

// The weighted minima of group g of a block for one token: of Q4_K and Q5_K, whose m is negated, or
// of halves of a group, where they are negated here.
template <QuantType kType>
inline dot::Floats add_minimum(const uint8_t* block, int g, const QuantizedRows& x, int64_t group,
                               dot::Floats low) {
  using namespace dot;
  if constexpr (format_of(kType).scale_group == 32) {
    const Floats min = to_float(load_unsigned(block + Block<kType>::kMin + g * kRows));
    return fma(min, splat(x.offset[group]), low);
  } else {
    const uint8_t* min = block + Block<kType>::kMin + 2 * g * kRows;
    const Sums one = sum_mul(load_unsigned(min), sum_splat(x.minus_sum16[2 * group]));
    const Sums two = sum_mul(load_unsigned(min + kRows), sum_splat(x.minus_sum16[2 * group + 1]));
    return fma(splat(x.scale[group]), to_float(sum_add(one, two)), low);
  }
}

// The same of N tiles, of which `codes` gives quad q of tile n, for U tokens from j on; of types
// with no scales within a block. A broadcast of activations serves all tiles.
template <QuantType kType, int N, int U, int T, class CodesOf>
inline void add_groups(const CodesOf& codes, const QuantizedRows& x, int64_t group, int64_t stride,
                       int j, dot::Floats (&inner)[N][T]) {
  using namespace dot;
  constexpr TileFormat f = format_of(kType);
  const int8_t* q = x.q + 32 * group;
  const auto start = [&](int u) __attribute__((always_inline)) {
    return start_sum<code_offset(f)>(x.minus_sum + group + u * stride);
  };
  Sums isum[N][U];
  dot_tiles<largest_code(f)>(codes, start, q, 32 * stride, isum);
#pragma GCC unroll 2
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u)
      inner[n][j + u] =
          fma(splat(x.scale[group + u * stride]), to_float(isum[n][u]), inner[n][j + u]);
}

// Types with a scale for each 16 weights: both halves of group g for one token go to its row.
template <QuantType kType, bool kSplit>
inline dot::Floats add_half_blocks(const uint8_t* block, int g, const dot::Codes* w,
                                   const QuantizedRows& x, int64_t group, dot::Floats row) {
  using namespace dot;
  Sums half[2];
  half_sums<kType, kSplit>(w, x.q + 32 * group, x.minus_sum16 + 2 * group, half);
  for (int i = 0; i < 2; ++i) {
    const Floats d = load_floats(floats(block + Block<kType>::kD + 4 * (2 * g + i) * kRows));
    const Floats inner = fma(splat(x.scale[group]), to_float(half[i]), splat(0.0f));
    row = fma(d, inner, row);
  }
  return row;
}

// A block of each of N tiles, `tile_bytes` apart, against T tokens, whose groups of activations
// begin at `first`, `stride` apart.
template <QuantType kType, int N, int T>
inline void add_block(const uint8_t* block, int64_t tile_bytes, const QuantizedRows& x,
                      int64_t first, int64_t stride, dot::Floats (&row)[N][T]) {
  using namespace dot;
  constexpr TileFormat f = format_of(kType);
  constexpr int kGroups = f.group / 32;
  constexpr int kPart = Block<kType>::kBytes / kGroups;
  Floats inner[N][T], low[T];
  for (int j = 0; j < T; ++j) {
    low[j] = splat(0.0f);
    for (int n = 0; n < N; ++n) inner[n][j] = splat(0.0f);
  }
  for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const int64_t ahead = N > 1 ? N * tile_bytes : kAhead;  // the same part of the next tiles
      fetch_ahead<kPart>(block + n * tile_bytes + g * kPart, ahead);
    }
    if constexpr (N > 1 && T < kMaxTokens) {
      const auto codes = [&](int n, int q) __attribute__((always_inline)) {
        return unpack_quad<kType>(block + n * tile_bytes, g, q);
      };
      add_groups<kType, N, T>(codes, x, first + g, stride, 0, inner);
      continue;
    }
    Codes w[N][8];
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) unpack<kType>(block + n * tile_bytes, g, w[n]);
    if constexpr (N > 1) {
      const auto codes = [&](int n, int q) __attribute__((always_inline)) { return w[n][q]; };
#pragma GCC unroll 1
      for (int j = 0; j < T; j += kTokensAtOnce)
        add_groups<kType, N, kTokensAtOnce>(codes, x, first + j * stride + g, stride, j, inner);
      continue;
    }
#pragma GCC unroll 8
    for (int j = 0; j < T; ++j) {
      const int64_t group = first + j * stride + g;
      if constexpr (f.wide_group == 16) {
        row[0][j] = add_half_blocks<kType, T == 1>(block, g, w[0], x, group, row[0][j]);
      } else {
        inner[0][j] = add_group<kType, T == 1>(block, g, w[0], x, group, inner[0][j]);
      }
    }
    if constexpr (f.group_minima) {
#pragma GCC unroll 8
      for (int j = 0; j < T; ++j)
        low[j] = add_minimum<kType>(block, g, x, first + j * stride + g, low[j]);
    }
  }
  if constexpr (f.wide_group == 16) return;
#pragma GCC unroll 2
  for (int n = 0; n < N; ++n) {
    const Floats d = load_d<kType>(block + n * tile_bytes);
    for (int j = 0; j < T; ++j) row[n][j] = fma(d, inner[n][j], row[n][j]);
    if constexpr (f.minima) {
      const Floats m = load_halves(halves(block + n * tile_bytes + Block<kType>::kM));
      for (int j = 0; j < T; ++j) {
        const Floats by = f.group_minima ? low[j] : splat(x.offset[first + j * stride]);
        row[n][j] = fma(m, by, row[n][j]);
      }
    }
  }
}

// N tiles from row r against T tokens from t.
template <QuantType kType, int N, int T>
inline void tile_tokens(const LinearArgs& a, int64_t r, int64_t t) {
  using namespace dot;
  constexpr int kGroups = format_of(kType).group / 32;
  const int64_t groups = a.cols / 32;
  Floats row[N][T];
  for (int n = 0; n < N; ++n)
    for (int j = 0; j < T; ++j) row[n][j] = splat(0.0f);
  const uint8_t* block = a.weight + r / kRows * a.tile_bytes;
  for (int64_t at = 0; at < groups; at += kGroups, block += Block<kType>::kBytes)
    add_block<kType, N, T>(block, a.tile_bytes, a.x, t * groups + at, groups, row);
  for (int n = 0; n < N; ++n)
    for (int j = 0; j < T; ++j) store_rows(a, t + j, r + n * kRows, row[n][j]);
}

// How many tiles meet some tokens at once.
constexpr int tiles_at_once(TileFormat f, int tokens) {
  const bool one_scale = f.scale_group == 0 && f.wide_group == 0;
  const bool narrow = f.low_bits + f.high_bits <= dot::kBitsOfTilesAtOnce && largest_code(f) < 255;
  if (!one_scale || !narrow) return 1;
  if (tokens == 1) return f.low_bits == 2 ? dot::kTilesOfOneToken : 1;
  return tokens == dot::kMaxTokens || dot::kTilesOfOneToken > 1 ? dot::kTilesAtOnce : 1;
}

// All rows against T tokens from t.
template <QuantType kType, int T>
inline void some_tokens(const LinearArgs& a, int64_t r, int64_t last, int64_t t) {
  constexpr int N = tiles_at_once(format_of(kType), T);
  for (; r + (N - 1) * dot::kRows < last; r += N * dot::kRows) tile_tokens<kType, N, T>(a, r, t);
  for (; r < last; r += dot::kRows) tile_tokens<kType, 1, T>(a, r, t);
}

template <QuantType kType>
void linear_tiles(const LinearArgs& a) {
  constexpr int kMany = format_of(kType).group_minima ? dot::kMaxTokens / 2 : dot::kMaxTokens;
  // Few tiles at a time, which stay in the first-level cache for all tokens.
  constexpr bool kMoreForOne = dot::kTilesOfOneToken > dot::kTilesAtOnce;
  constexpr int kRows = dot::kRows * (kMoreForOne ? dot::kTilesOfOneToken : dot::kTilesAtOnce);
  for (int64_t r = a.first; r < a.last; r += kRows) {
    const int64_t last = r + kRows < a.last ? r + kRows : a.last;
    int64_t t = a.first_token;
    for (; t + kMany <= a.last_token; t += kMany) some_tokens<kType, kMany>(a, r, last, t);
    if constexpr (kMany > 4)
      for (; t + 4 <= a.last_token; t += 4) some_tokens<kType, 4>(a, r, last, t);
    // Two and one in turn would read and unpack the weights twice.
    switch (a.last_token - t) {
      case 3:
        some_tokens<kType, 3>(a, r, last, t);
        break;
      case 2:
        some_tokens<kType, 2>(a, r, last, t);
        break;
      case 1:
        some_tokens<kType, 1>(a, r, last, t);
        break;
      default:
        break;
    }
  }
}

// Gives each of the types its kernel.
template <QuantType... kTypes>
void fill_tiles(KernelTable& table) {
  ((table.linear[static_cast<int>(kTypes)] = {&linear_tiles<kTypes>, dot::kRows}), ...);
}

}  // namespace
