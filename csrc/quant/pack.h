#pragma once

#include <cstdint>

#include "quant/unpack.h"

namespace oxibonsai::quant {

// Puts a block together: the inverse of unpack_block(), for the types without a codebook. Q8_1
// takes its sum from `m`.
void pack_block(QuantType type, const BlockParts& parts, uint8_t* block);

}  // namespace oxibonsai::quant
