#include "cpu/quantized_rows.h"

namespace oxibonsai::cpu {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

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
    r.table_bias = arrays.take<float>(values / 32);
  }
  r.cols = cols;
  return r;
}

}  // namespace

int64_t quantized_bytes(int64_t rows, int64_t cols, bool tables) {
  Arrays arrays(nullptr);
  place(arrays, rows, cols, tables);
  return arrays.used();
}

QuantizedRows quantized_rows(uint8_t* memory, int64_t rows, int64_t cols, bool tables) {
  Arrays arrays(memory);
  return place(arrays, rows, cols, tables);
}

QuantizedRows from(const QuantizedRows& rows, int64_t row, int64_t col) {
  const int64_t at = row * rows.cols + col;
  QuantizedRows r = rows;
  r.q += at;
  r.scale += at / 32;
  r.minus_sum16 += at / 16;
  r.minus_sum += at / 32;
  r.offset += at / 32;
  if (r.tables != nullptr) {
    r.tables += at / 32 * kTableBytes;
    r.table_bias += at / 32;
  }
  return r;
}

}  // namespace oxibonsai::cpu
