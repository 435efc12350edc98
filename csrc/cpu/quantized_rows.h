#pragma once

#include "base/aligned.h"
#include "cpu/kernel_table.h"

namespace oxibonsai::cpu {

// Whether a kernel looks sums up in QuantizedRows::tables.
bool reads_tables(const LinearKernel& kernel);

// Bytes of memory that rounded rows take, with or without the tables of cpu/body/linear_1bit.h.
int64_t quantized_bytes(int64_t rows, int64_t cols, bool tables);

// The arrays in that memory, which begins on a 64-byte boundary.
QuantizedRows quantized_rows(uint8_t* memory, int64_t rows, int64_t cols, bool tables);

// The same arrays from element (row, col) on; col is a multiple of 32.
QuantizedRows quantized_from(QuantizedRows rows, int64_t row, int64_t col);

// Rounds x[count] to the columns of row `row` from `first` on, and makes their tables where there
// is room for them. first and count are multiples of 32.
void quantize_cols(const KernelTable& table, const float* x, const QuantizedRows& out, int64_t row,
                   int64_t first, int64_t count);

// Activations x[rows, cols] rounded by a tier, in memory of their own, for kernels that run outside
// a step.
class RoundedRows {
 public:
  RoundedRows(const KernelTable& table, const float* x, int64_t rows, int64_t cols, bool tables);

  const QuantizedRows& values() const { return values_; }

 private:
  AlignedBuffer memory_;
  QuantizedRows values_;
};

}  // namespace oxibonsai::cpu
