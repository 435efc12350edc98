#pragma once

// unpack_block() for the types whose codes come from a codebook. Their scales are d / 8, d / 4 or
// d, so that group scales are odd integers.

#include <cstdint>

#include "quant/unpack.h"

namespace oxibonsai::quant {

void unpack_iq2_xxs(const uint8_t* bytes, BlockParts* p);
void unpack_iq2_xs(const uint8_t* bytes, BlockParts* p);
void unpack_iq2_s(const uint8_t* bytes, BlockParts* p);
void unpack_iq3_xxs(const uint8_t* bytes, BlockParts* p);
void unpack_iq3_s(const uint8_t* bytes, BlockParts* p);
void unpack_iq1_s(const uint8_t* bytes, BlockParts* p);
void unpack_iq1_m(const uint8_t* bytes, BlockParts* p);

// The binary16 bits of an IQ1_M block's scale.
uint16_t scale_of_iq1_m(const uint8_t* bytes);

}  // namespace oxibonsai::quant
