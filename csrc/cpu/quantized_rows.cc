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
    r.minus_abs = arrays.take<int32_t>(values / 32);
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

void quantize_row(const KernelTable& table, const float* x, const QuantizedRows& out, int64_t row) {
  const int64_t groups = out.cols / 32;
  QuantizedRows one = out;
  one.q += row * out.cols;
  one.scale += row * groups;
  one.minus_sum16 += 2 * row * groups;
  one.minus_sum += row * groups;
  one.offset += row * groups;
  table.quantize(x, out.cols, one);
  if (out.tables == nullptr) return;
  one.tables += row * groups * kTableBytes;
  one.minus_abs += row * groups;
  table.make_tables(one.q, out.cols, one);
}

}  // namespace oxibonsai::cpu
