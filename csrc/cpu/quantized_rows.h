#pragma once

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu {

// Bytes of memory that rounded rows take, with or without the tables of cpu/body/linear_1bit.h.
int64_t quantized_bytes(int64_t rows, int64_t cols, bool tables);

// The arrays in that memory, which begins on a 64-byte boundary.
QuantizedRows quantized_rows(uint8_t* memory, int64_t rows, int64_t cols, bool tables);

// Rounds x[count] to the columns of row `row` from `first` on, and makes their tables where there
// is room for them. first and count are multiples of 32.
void quantize_cols(const KernelTable& table, const float* x, const QuantizedRows& out, int64_t row,
                   int64_t first, int64_t count);

}  // namespace oxibonsai::cpu
