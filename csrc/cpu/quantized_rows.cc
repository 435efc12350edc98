#include "cpu/quantized_rows.h"

namespace oxibonsai::cpu {
namespace {

// Hands out the arrays one after the other; from null, it only counts.
class Arrays {
 public:
  explicit Arrays(uint8_t* memory) : memory_(memory) {}

  template <class T>
  T* take(int64_t count) {
    T* part = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += aligned(count * static_cast<int64_t>(sizeof(T)));
    return part;
  }
  int64_t used() const { return used_; }

 private:
  uint8_t* const memory_;
  int64_t used_ = 0;
};

QuantizedRows place(Arrays& arrays, int64_t rows, int64_t cols, bool tables) {
  const int64_t values = rows * cols;
  QuantizedRows r{};
  r.q = arrays.take<int8_t>(values);
  r.scale = arrays.take<float>(values / 32);
  r.minus_sum16 = arrays.take<int32_t>(values / 16);
  r.minus_sum = arrays.take<int32_t>(values / 32);
  r.offset = arrays.take<float>(values / 32);
  if (tables) {
    r.tables = arrays.take<uint8_t>(values / 32 * kTableBytes);
    r.minus_abs = arrays.take<int32_t>(values / 32);
  }
  r.cols = cols;
  return r;
}

}  // namespace

bool reads_tables(const LinearKernel& kernel) {
  return kernel.form == TileForm::kByteRows || kernel.form == TileForm::kWordRows;
}

int64_t quantized_bytes(int64_t rows, int64_t cols, bool tables) {
  Arrays arrays(nullptr);
  place(arrays, rows, cols, tables);
  return arrays.used();
}

QuantizedRows quantized_rows(uint8_t* memory, int64_t rows, int64_t cols, bool tables) {
  Arrays arrays(memory);
  return place(arrays, rows, cols, tables);
}

QuantizedRows quantized_from(QuantizedRows rows, int64_t row, int64_t col) {
  const int64_t at = row * rows.cols + col;
  rows.q += at;
  rows.scale += at / 32;
  rows.minus_sum16 += at / 16;
  rows.minus_sum += at / 32;
  rows.offset += at / 32;
  if (rows.tables != nullptr) {
    rows.tables += at / 32 * kTableBytes;
    rows.minus_abs += at / 32;
  }
  return rows;
}

void quantize_cols(const KernelTable& table, const float* x, const QuantizedRows& out, int64_t row,
                   int64_t first, int64_t count) {
  const QuantizedRows part = quantized_from(out, row, first);
  table.quantize(x, count, part);
  if (part.tables != nullptr) table.make_tables(part.q, count, part);
}

RoundedRows::RoundedRows(const KernelTable& table, const float* x, int64_t rows, int64_t cols,
                         bool tables)
    : memory_(static_cast<size_t>(quantized_bytes(rows, cols, tables))),
      values_(quantized_rows(memory_.data(), rows, cols, tables)) {
  for (int64_t r = 0; r < rows; ++r) quantize_cols(table, x + r * cols, values_, r, 0, cols);
}

}  // namespace oxibonsai::cpu
