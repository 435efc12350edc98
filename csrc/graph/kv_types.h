#pragma once

// Pages of keys and values. Tiers of the CPU include this header, so it holds no inline function.

#include <cstdint>

namespace oxibonsai::graph {

// Positions in one page of keys and values.
constexpr int kPagePositions = 64;

enum class KvType : uint8_t { kF32, kF16, kQ8_0, kQ4_0, kFp8 };

// Dims of one key or value that share a scale in kQ8_0 and kQ4_0.
constexpr int kKvGroup = 32;

// How one page holds the keys and the values of one layer and one key-value head: two blocks of
// bytes, which graph/kv_layout.h lays out. Keys lie transposed, so that a vector holds one
// dim of 16 positions, and a position owns its bytes, so that threads may write side by side:
//            keys                                  values
//   f32, f16, fp8_e4m3
//            [key_dim, 64]                         [64, value_stride]
//   q8_0     codes [key_dim, 64]                   codes [64, 32 * groups]
//   q4_0     dims 2i, 2i + 1 of a position in the  dims j and j + 16 of a group in the nibbles of
//            nibbles of a byte [key_dim / 2, 64]   a byte [64, 16 * groups], each code plus 8
//   q8_0, q4_0
//            then f16 scales [groups, 64]          then f16 scales [groups, 64]
// With value_in_key there is no second block: values are the first value_dim dims of the keys.
struct KvLayout {
  KvType type;
  int key_dim, value_dim;
  bool value_in_key;
  int value_stride;                // floats that a sum of values takes: value_dim rounded up to 16
  int value_row;                   // bytes of a position in the values, without its scales
  int key_scales, value_scales;    // where in a block its scales begin
  int64_t key_bytes, value_bytes;  // of the blocks, multiples of 64
};

}  // namespace oxibonsai::graph
