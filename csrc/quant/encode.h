#pragma once

// From float32 to the blocks of a type. The bytes depend on the values, the importance and nothing
// else: encoders are compiled for the baseline processor and use no function of a math library.

#include <cstdint>

#include "base/thread_pool.h"
#include "quant/quant_type.h"

namespace oxibonsai::quant {

// Whether an encoder looks at the importance of columns.
enum class Importance : uint8_t { kUnused, kOptional, kNeeded };

struct Encoder {
  // One row. `values` are finite and at most `largest` in magnitude; `importance` holds a positive
  // weight a column, 1 on average, or is null.
  void (*row)(const float* values, const float* importance, int64_t cols, uint8_t* blocks);
  Importance importance;
  float largest;  // the largest magnitude that a block can hold
};

const Encoder& encoder_of(QuantType type);

// FormatError with the row and column of a value that isn't finite or is too large for the type.
void check_values(QuantType type, const float* values, int64_t rows, int64_t cols);

// Encodes rows * cols values; `importance` (cols, finite and not negative, of any size) may be null
// unless the type needs it. FormatError with the row and column of a value that isn't finite or is
// too large for the type.
void encode(QuantType type, const float* values, int64_t rows, int64_t cols,
            const float* importance, ThreadPool& pool, uint8_t* blocks);

}  // namespace oxibonsai::quant
