#pragma once

// Blocks of 32 whose weights all count alike, in little more time than it takes to round them:
// four starts are rounded at once, and the one whose codes suit a scale best is taken.

#include "quant/unpack.h"

namespace oxibonsai::quant {

// Sets d, m and the codes from 0 to `high` (at most 31) of weights that are d * code + m.
void fit_even_line(const float* values, float high, BlockParts* parts);

// Sets d and the codes of weights that are d * (code - 16), with codes from 0 to 31.
void fit_even_integers(const float* values, BlockParts* parts);

}  // namespace oxibonsai::quant
