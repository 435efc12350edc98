#pragma once

// Blocks whose later columns make up for what rounding the earlier ones did to a layer's output:
// GPTQ (Frantar, Ashkboos, Hoefler, Alistarh: arXiv:2210.17323, algorithm 1), whose libraries
// write layouts of their own and no GGUF blocks.

#include <cstdint>

#include "base/thread_pool.h"
#include "quant/quant_type.h"

namespace oxibonsai::quant {

// Whether a type takes feedback: those with integer codes but for the 8-bit ones, which lose too
// little.
bool takes_feedback(QuantType type);

// Encodes rows * cols values. `factor` [cols, cols] is the upper triangle U of U^T U = H^-1, H the
// second moments of the layer's inputs: with e_j = (w_j - q_j) / U_jj, where w_j has taken up the
// errors before it (w_k -= e_j U_jk), a row's output has the mean square error sum e_j^2.
// UnsupportedError for a type that takes no feedback; FormatError for values as encode(), and for a
// factor whose diagonal is not positive. The bytes do not depend on the threads.
void encode_with_feedback(QuantType type, const float* values, int64_t rows, int64_t cols,
                          const float* factor, ThreadPool& pool, uint8_t* blocks);

}  // namespace oxibonsai::quant
