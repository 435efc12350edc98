#pragma once

#include <cstdint>

#include "quant/quant_type.h"

namespace oxibonsai::quant {

// One block taken apart into integers: what an integer kernel needs of it. With v = step * code -
// offset (below), a weight is d * v, d * code + m, d * scale * v or d * scale * code - m * min, as
// the type has minima and group scales or not.
struct BlockParts {
  uint16_t d;         // binary16 bits
  uint16_t m;         // binary16 bits of m or dmin; 0 where the type has none
  uint8_t code[256];  // in the order of the weights
  int8_t scale[16];   // per 32 weights, or per 16 in Q6_K
  uint8_t min[8];     // per 32 weights
};

// How codes become integers, and which parts a type has.
struct CodeForm {
  int step, offset;
  bool has_min;     // m is used
  int scale_group;  // weights per group scale; 0: none
};

// Integer types only: UnsupportedError for F32, F16, BF16.
CodeForm code_form(QuantType type);
void split_block(QuantType type, const uint8_t* block, BlockParts* parts);

// True for types whose rows are rounded against int8 activations.
bool is_integer(QuantType type);

}  // namespace oxibonsai::quant
