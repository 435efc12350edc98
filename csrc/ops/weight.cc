#include "ops/weight.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cpu/pack.h"

namespace oxibonsai::ops {

Weight::Weight(std::string name, quant::QuantType type, int64_t rows, int64_t cols,
               const uint8_t* data, std::shared_ptr<const void> owner)
    : name_(std::move(name)),
      type_(type),
      rows_(rows),
      cols_(cols),
      row_bytes_(quant::row_bytes(type, cols)),
      data_(data),
      owner_(std::move(owner)) {
  if (rows < 1 || cols < 1)
    throw FormatError(name_ + " has no rows or no columns: not a weight");
}

void Weight::pack(const cpu::KernelTable& table, ThreadPool& pool) {
  if (packed()) return;
  const cpu::LinearKernel kernel = table.linear[static_cast<int>(type_)];
  const int tile_rows = kernel.tile_rows;
  if (tile_rows != 0) {
    const auto& format = cpu::kTileFormats[static_cast<int>(type_)];
    tile_bytes_ = cpu::tile_sections(format, tile_rows, cols_).bytes;
    const int64_t tiles = (rows_ + tile_rows - 1) / tile_rows;
    AlignedBuffer buffer(static_cast<size_t>(tiles * tile_bytes_));
    try {
      pool.for_each(tiles, 4, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i * tile_rows;
          const auto rows = static_cast<int>(std::min<int64_t>(tile_rows, rows_ - first));
          cpu::pack_tile(type_, data_ + first * row_bytes_, row_bytes_, rows, cols_, tile_rows, first,
                         buffer.data() + i * tile_bytes_);
        }
      });
    } catch (const FormatError& e) {
      throw FormatError("tensor " + name_ + ": " + e.what());
    }
    tiles_ = std::move(buffer);
  }
  kernel_ = kernel;
}

void Weight::decode_row(int64_t r, float* out) const {
  quant::traits(type_).decode(data_ + r * row_bytes_, out, cols_);
}

const cpu::LinearKernel& Weight::bind(cpu::LinearArgs* args) const {
  args->weight = kernel_.tile_rows == 0 ? data_ : tiles_.data();
  args->row_bytes = row_bytes_;
  args->tile_bytes = tile_bytes_;
  args->cols = cols_;
  return kernel_;
}

}  // namespace oxibonsai::ops
