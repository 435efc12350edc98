#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/data_owner.h"
#include "cpu/kernel_table.h"
#include "quant/inspect.h"
#include "quant/quant_type.h"

namespace oxibonsai::ops {

// A matrix of a checkpoint, [rows, cols], in its stored form, and in the form that the kernel in
// use wants once it has been packed (ops/pack_weights.h). Shared, never copied.
class Weight {
 public:
  // `owner`, which may be null, keeps `data` alive: rows * row_bytes bytes.
  Weight(std::string name, quant::QuantType type, int64_t rows, int64_t cols, const uint8_t* data,
         std::shared_ptr<const DataOwner> owner);

  const std::string& name() const { return name_; }
  quant::QuantType type() const { return type_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t bytes() const { return rows_ * row_bytes_; }

  // Bytes of the form that the tier's kernel wants; 0 where that is the stored one.
  int64_t tiles_bytes(const cpu::KernelTable& table) const;
  // Has tiles [first, last) of the packed form written to `tiles`, the start of all of them, and
  // the file's copy of them released. FormatError where a scale is not finite.
  void write_tiles(const cpu::KernelTable& table, int64_t first, int64_t last,
                   uint8_t* tiles) const;
  // The rows in one tile, or in one piece of work where the stored form is used.
  static int64_t rows_in_piece(const cpu::LinearKernel& kernel);
  // From now on linear layers of this tier run on these tiles (null: on the stored form), which
  // `keeper` owns.
  void use_tiles(const cpu::KernelTable& table, const uint8_t* tiles,
                 std::shared_ptr<const void> keeper);
  // Whether a tier's kernel can run: it reads the stored form, or it was packed for.
  bool ready_for(const cpu::KernelTable& table) const;

  bool packed() const { return packed_for_ != nullptr; }
  int64_t packed_bytes() const;

  // A look at every block.
  quant::BlockReport inspect() const { return quant::inspect(type_, data_, rows_ * cols_); }

  // Row r as float32: cols values.
  void decode_row(int64_t r, float* out) const;

  // Fills in what a tier's kernel needs to know of the weight and returns the kernel.
  const cpu::LinearKernel& bind(const cpu::KernelTable& table, cpu::LinearArgs* args) const;

 private:
  void check_finite(int64_t first, int64_t last) const;
  int64_t tile_bytes(const cpu::LinearKernel& kernel) const;

  const std::string name_;
  const quant::QuantType type_;
  const int64_t rows_, cols_, row_bytes_;
  const uint8_t* const data_;
  const std::shared_ptr<const DataOwner> owner_;
  const cpu::KernelTable* packed_for_ = nullptr;
  const uint8_t* tiles_ = nullptr;
  int64_t tile_bytes_ = 0;
  std::shared_ptr<const void> keeper_;
};

}  // namespace oxibonsai::ops
