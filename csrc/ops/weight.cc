#include "ops/weight.h"

#include <algorithm>
#include <string>
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
  if (rows < 1 || cols < 1) throw FormatError(name_ + " has no rows or no columns: not a weight");
}

void Weight::check_finite(int64_t first, int64_t last) const {
  const quant::BlockReport report =
      quant::inspect(type_, data_ + first * row_bytes_, (last - first) * cols_);
  if (report.not_finite == 0) return;
  const int64_t weight = report.first_bad_block * quant::traits(type_).group;
  throw FormatError("tensor " + name_ + " has a scale or value that is not finite (row " +
                    std::to_string(first + weight / cols_) + ", column " +
                    std::to_string(weight % cols_) +
                    "): the file is damaged, or its type has another layout");
}

void Weight::pack(const cpu::KernelTable& table, ThreadPool& pool) {
  if (packed()) return;
  const cpu::LinearKernel kernel = table.linear[static_cast<int>(type_)];
  // The pieces in which threads take the rows: tiles, or rows where the file's form is used.
  const int64_t piece = kernel.tile_rows != 0 ? kernel.tile_rows : 16;
  const int64_t pieces = (rows_ + piece - 1) / piece;
  if (kernel.tile_rows != 0) {
    const auto& format = cpu::kTileFormats[static_cast<int>(type_)];
    tile_bytes_ = cpu::tile_sections(format, kernel.tile_rows, cols_).bytes;
    tiles_ = AlignedBuffer(static_cast<size_t>(pieces * tile_bytes_));
  }
  pool.for_each(pieces, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * piece;
      const int64_t last = std::min(rows_, first + piece);
      check_finite(first, last);
      if (kernel.tile_rows != 0)
        cpu::pack_tile(type_, data_ + first * row_bytes_, row_bytes_,
                       static_cast<int>(last - first), cols_, kernel.tile_rows,
                       tiles_.data() + i * tile_bytes_);
    }
  });
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
