#pragma once

#include <cstdint>

#include "quant/quant_type.h"

namespace oxibonsai::quant {

// What a look at every block of a tensor finds.
struct BlockReport {
  int64_t blocks = 0;
  int64_t not_finite = 0;  // blocks with a scale, minimum or value that is inf or NaN
  int64_t first_bad_block = -1;
  int64_t codes_of_three = 0;  // of 2-bit and ternary types: 0 in a ternary model
};

// The first block with a scale, minimum or value that is inf or NaN, or -1: inspect() without the
// codes.
int64_t find_not_finite(QuantType type, const uint8_t* blocks, int64_t weights);

BlockReport inspect(QuantType type, const uint8_t* blocks, int64_t weights);

}  // namespace oxibonsai::quant
