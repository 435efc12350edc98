#pragma once

#include <cstdint>

#include "quant/quant_type.h"

namespace oxibonsai::quant {

// One block taken apart into integers: what an integer kernel needs of it. With v a code's integer
// (CodeForm::value) and d the scale, a weight is d * v, d * v + m, d * scale * v or
// d * scale * v - m * min, as the type has minima and group scales or not.
struct BlockParts {
  uint16_t d;         // binary16 bits
  uint16_t m;         // binary16 bits of m or dmin; 0 where the type has none
  float wide[4];      // instead of d where binary16 can't hold it (CodeForm::wide_group)
  uint8_t code[256];  // in the order of the weights
  int8_t scale[16];   // per CodeForm::scale_group weights
  uint8_t min[16];    // per CodeForm::scale_group weights
};

// How codes become integers, and which parts a type has.
struct CodeForm {
  int step, offset;
  bool has_min;     // m is used
  int scale_group;  // weights per group scale; 0: none
  const int8_t* codebook =
      nullptr;         // what a code stands for (quant/codebook_values.h), instead of step, offset
  int wide_group = 0;  // weights per `wide`; 0: d holds the scale

  int value(uint8_t code) const {
    return codebook != nullptr ? codebook[code] : step * code - offset;
  }
};

// Integer types only: UnsupportedError for the others.
CodeForm code_form(QuantType type);
void unpack_block(QuantType type, const uint8_t* block, BlockParts* parts);

// True for types whose rows are rounded against int8 activations.
bool is_integer(QuantType type);

}  // namespace oxibonsai::quant
