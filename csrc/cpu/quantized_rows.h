#pragma once

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu {

// Bytes of memory that rounded rows take, with or without the tables of cpu/body/linear_1bit.h.
int64_t quantized_bytes(int64_t rows, int64_t cols, bool tables);

// The arrays in that memory, which begins on a 64-byte boundary.
QuantizedRows quantized_rows(uint8_t* memory, int64_t rows, int64_t cols, bool tables);

// Rounds x[cols] to row `row`, and makes its tables where there is room for them.
void quantize_row(const KernelTable& table, const float* x, const QuantizedRows& out, int64_t row);

}  // namespace oxibonsai::cpu
