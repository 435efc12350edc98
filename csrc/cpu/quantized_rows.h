#pragma once

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu {

// Bytes of memory that rounded rows take, with or without the tables of cpu/body/linear_1bit.h.
int64_t quantized_bytes(int64_t rows, int64_t cols, bool tables);

// The arrays in that memory, which begins on a 64-byte boundary.
QuantizedRows quantized_rows(uint8_t* memory, int64_t rows, int64_t cols, bool tables);

// The same arrays from column `col` of row `row` on; col is a multiple of 32.
QuantizedRows from(const QuantizedRows& rows, int64_t row, int64_t col);

}  // namespace oxibonsai::cpu
