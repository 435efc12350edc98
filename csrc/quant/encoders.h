#pragma once

// What the table in encode.cc is made of: rows of the types without parts, and for the others a
// function that finds the parts of one block.

#include <cstdint>

#include "quant/quant_type.h"
#include "quant/unpack.h"

namespace oxibonsai::quant {

using EncodeRow = void(const float* values, const float* importance, int64_t cols, uint8_t* blocks);

EncodeRow encode_f32, encode_f16, encode_bf16, encode_f8_e4m3, encode_f8_e5m2;

EncodeRow encode_iq2_xxs, encode_iq2_xs, encode_iq2_s, encode_iq3_xxs, encode_iq3_s;
EncodeRow encode_iq1_s, encode_iq1_m;

// `importance` belongs to the block's weights, is positive, and may be null.
using FitBlock = void(const float* values, const float* importance, BlockParts* parts);

// encode_legacy.cc
FitBlock fit_q8_0, fit_q8_k;
FitBlock fit_q4_0, fit_q4_1, fit_q5_0, fit_q5_1;

// encode_low_bit.cc, by the number of weights in a block
FitBlock fit_binary_128, fit_ternary_64, fit_ternary_128, fit_ternary_256;

// encode_k.cc
FitBlock fit_q2_k, fit_q3_k, fit_q4_k, fit_q5_k, fit_q6_k;

// encode_iq4.cc
FitBlock fit_iq4_nl, fit_iq4_xs, fit_mxfp4, fit_nvfp4;

}  // namespace oxibonsai::quant
