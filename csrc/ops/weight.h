#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "cpu/kernel_table.h"
#include "quant/inspect.h"
#include "quant/quant_type.h"

namespace oxibonsai::ops {

// A matrix of a checkpoint, [rows, cols], in its stored form, and packed for the kernel in use once
// pack() has been called. Shared, never copied.
class Weight {
 public:
  // `owner` keeps `data` alive: rows * row_bytes bytes.
  Weight(std::string name, quant::QuantType type, int64_t rows, int64_t cols, const uint8_t* data,
         std::shared_ptr<const void> owner);

  const std::string& name() const { return name_; }
  quant::QuantType type() const { return type_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t bytes() const { return rows_ * row_bytes_; }

  // Takes the layout that the tier's kernel wants; does nothing where that is the stored one or
  // where it was done before. FormatError where a scale is not finite.
  void pack(const cpu::KernelTable& table, ThreadPool& pool);
  bool packed() const { return kernel_.run != nullptr; }
  int64_t packed_bytes() const { return static_cast<int64_t>(tiles_.size()); }

  // A look at every block.
  quant::BlockReport inspect() const { return quant::inspect(type_, data_, rows_ * cols_); }

  // Row r as float32: cols values.
  void decode_row(int64_t r, float* out) const;

  // Fills in what a kernel needs to know of the weight and returns the kernel.
  const cpu::LinearKernel& bind(cpu::LinearArgs* args) const;

 private:
  void check_finite(int64_t first, int64_t last) const;

  const std::string name_;
  const quant::QuantType type_;
  const int64_t rows_, cols_, row_bytes_;
  const uint8_t* const data_;
  const std::shared_ptr<const void> owner_;
  cpu::LinearKernel kernel_{};
  AlignedBuffer tiles_;
  int64_t tile_bytes_ = 0;
};

}  // namespace oxibonsai::ops
