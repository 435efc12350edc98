#pragma once

// Decoders to float32, exactly as each format defines its values. `count` is a multiple of the
// type's group.

#include <cstdint>

#include "quant/quant_type.h"

namespace oxibonsai::quant {

void decode_f32(const uint8_t* blocks, float* out, int64_t count);
void decode_f16(const uint8_t* blocks, float* out, int64_t count);
void decode_bf16(const uint8_t* blocks, float* out, int64_t count);
void decode_f8_e4m3(const uint8_t* blocks, float* out, int64_t count);
void decode_f8_e5m2(const uint8_t* blocks, float* out, int64_t count);

// Every integer type (quant/unpack.h).
template <QuantType kType>
void decode_blocks(const uint8_t* blocks, float* out, int64_t count);

}  // namespace oxibonsai::quant
