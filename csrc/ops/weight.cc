#include "ops/weight.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "cpu/pack.h"

namespace oxibonsai::ops {
namespace {

// Rows that one thread checks at a time where nothing is packed.
constexpr int64_t kStoredRows = 16;

}  // namespace

Weight::Weight(std::string name, quant::QuantType type, int64_t rows, int64_t cols,
               const uint8_t* data, std::shared_ptr<const DataOwner> owner)
    : name_(std::move(name)),
      type_(type),
      rows_(rows),
      cols_(cols),
      row_bytes_(quant::row_bytes(type, cols)),
      data_(data),
      owner_(std::move(owner)) {
  if (rows < 1 || cols < 1) throw FormatError(name_ + " has no rows or no columns: not a weight");
}

void Weight::check_finite(int64_t first, int64_t last) const {
  const int64_t block =
      quant::find_not_finite(type_, data_ + first * row_bytes_, (last - first) * cols_);
  if (block < 0) return;
  const int64_t weight = block * quant::traits(type_).group;
  throw FormatError("tensor " + name_ + " has a scale or value that is not finite (row " +
                    std::to_string(first + weight / cols_) + ", column " +
                    std::to_string(weight % cols_) +
                    "): the file is damaged, or its type has another layout");
}

int64_t Weight::rows_in_piece(const cpu::LinearKernel& kernel) {
  return kernel.tile_rows != 0 ? kernel.tile_rows : kStoredRows;
}

int64_t Weight::tile_bytes(const cpu::LinearKernel& kernel) const {
  return cpu::tile_bytes(cpu::kTileFormats[static_cast<int>(type_)], kernel.tile_rows, cols_);
}

int64_t Weight::tiles_bytes(const cpu::KernelTable& table) const {
  const cpu::LinearKernel& kernel = table.linear[static_cast<int>(type_)];
  if (kernel.tile_rows == 0) return 0;
  return (rows_ + kernel.tile_rows - 1) / kernel.tile_rows * tile_bytes(kernel);
}

void Weight::write_tiles(const cpu::KernelTable& table, int64_t first, int64_t last,
                         uint8_t* tiles) const {
  const cpu::LinearKernel& kernel = table.linear[static_cast<int>(type_)];
  const int64_t piece = rows_in_piece(kernel);
  const int64_t end = std::min(rows_, last * piece);
  for (int64_t i = first; i < last; ++i) {
    const int64_t row = i * piece;
    const int64_t count = std::min(rows_ - row, piece);
    check_finite(row, row + count);
    if (kernel.tile_rows == 0) continue;
    cpu::pack_tile(type_, data_ + row * row_bytes_, row_bytes_, static_cast<int>(count), cols_,
                   kernel.tile_rows, kernel.form, tiles + i * tile_bytes(kernel));
  }
  if (kernel.tile_rows != 0 && owner_ != nullptr)
    owner_->release(data_ + first * piece * row_bytes_, (end - first * piece) * row_bytes_);
}

void Weight::use_tiles(const cpu::KernelTable& table, const uint8_t* tiles,
                       std::shared_ptr<const void> keeper) {
  packed_for_ = &table;
  const cpu::LinearKernel& kernel = table.linear[static_cast<int>(type_)];
  tile_bytes_ = kernel.tile_rows == 0 ? 0 : tile_bytes(kernel);
  tiles_ = tiles;
  keeper_ = std::move(keeper);
}

bool Weight::ready_for(const cpu::KernelTable& table) const {
  return packed_for_ == &table || table.linear[static_cast<int>(type_)].tile_rows == 0;
}

int64_t Weight::packed_bytes() const {
  return packed_for_ == nullptr ? 0 : tiles_bytes(*packed_for_);
}

void Weight::decode_row(int64_t r, float* out) const {
  quant::traits(type_).decode(data_ + r * row_bytes_, out, cols_);
}

const cpu::LinearKernel& Weight::bind(const cpu::KernelTable& table, cpu::LinearArgs* args) const {
  const cpu::LinearKernel& kernel = table.linear[static_cast<int>(type_)];
  args->weight = kernel.tile_rows == 0 ? data_ : tiles_;
  args->row_bytes = row_bytes_;
  args->tile_bytes = tile_bytes_;
  args->cols = cols_;
  return kernel;
}

}  // namespace oxibonsai::ops
