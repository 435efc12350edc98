#pragma once

#include <cstdint>

#include "quant/split.h"

namespace oxibonsai::quant {

// Puts a block together: the inverse of split_block(), for the types without a codebook. Q8_1 takes
// its sum from `m`.
void join_block(QuantType type, const BlockParts& parts, uint8_t* block);

}  // namespace oxibonsai::quant
