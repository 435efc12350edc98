#include "cpu/packed_weight.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/aligned.h"
#include "base/check.h"
#include "base/computed_bytes.h"
#include "base/file_set.h"
#include "base/huge_buffer.h"
#include "base/memory_size.h"
#include "cpu/pack.h"

namespace oxibonsai::cpu {
namespace {

// Bytes of a file that a thread packs before it gives them back.
constexpr int64_t kPieceBytes = 1 << 20;
// Rows of a piece where nothing is interleaved.
constexpr int64_t kStoredRows = 16;

const LinearKernel& kernel_of(const graph::Weight& w, const KernelTable& table) {
  return table.linear[static_cast<int>(w.type())];
}

// Weights that are in memory in the form that the kernel reads stay where they are.
bool in_place(const graph::Weight& w, const LinearKernel& kernel) {
  return kernel.tile_rows == 0 && !w.maps_file();
}

// A piece is a tile, or some stored rows.
int64_t rows_in_piece(const LinearKernel& kernel) {
  return kernel.tile_rows != 0 ? kernel.tile_rows : kStoredRows;
}

int64_t pieces_of(const graph::Weight& w, const LinearKernel& kernel) {
  const int64_t rows = rows_in_piece(kernel);
  return (w.rows() + rows - 1) / rows;
}

int64_t bytes_of_piece(const graph::Weight& w, const LinearKernel& kernel) {
  if (in_place(w, kernel)) return 0;
  if (kernel.tile_rows == 0) return kStoredRows * w.row_bytes();
  return tile_bytes(kTileFormats[static_cast<int>(w.type())], kernel.form, kernel.tile_rows,
                    w.cols());
}

// Checks pieces first .. last - 1 of one expert and, where they are not read in place, writes them
// to `tiles`, which begins with the expert's first.
void write_pieces(const graph::Weight& w, const LinearKernel& kernel, int64_t expert, int64_t first,
                  int64_t last, uint8_t* tiles) {
  const int64_t rows = rows_in_piece(kernel);
  const int64_t begin = expert * w.rows();
  for (int64_t i = first; i < last; ++i) {
    const int64_t row = begin + i * rows;
    const int64_t count = std::min(w.rows() - i * rows, rows);
    w.check_finite(row, row + count);
    if (in_place(w, kernel)) continue;
    uint8_t* piece = tiles + i * bytes_of_piece(w, kernel);
    if (kernel.tile_rows == 0)
      std::memcpy(piece, w.row(row), static_cast<size_t>(count * w.row_bytes()));
    else
      pack_tile(w.type(), w.row(row), w.row_bytes(), static_cast<int>(count), w.cols(),
                kernel.tile_rows, kernel.form, piece);
  }
  if (!in_place(w, kernel))
    w.release(begin + first * rows, begin + std::min(w.rows(), last * rows));
}

void pack_one(const graph::Weight& w, const LinearKernel& kernel, ThreadPool& pool,
              uint8_t* tiles) {
  const auto held = ComputedBytes::hold(w.data());
  const int64_t in_expert = pieces_of(w, kernel);
  const int64_t expert_bytes = in_expert * bytes_of_piece(w, kernel);
  const int64_t count = in_expert * w.experts();
  const int64_t piece =
      std::max<int64_t>(1, std::min(count / pool.size(), kPieceBytes * count / w.bytes()));
  pool.for_each(count, piece, [&](int64_t first, int64_t last) {
    while (first < last) {
      const int64_t expert = first / in_expert;
      const int64_t end = std::min(last, (expert + 1) * in_expert);
      write_pieces(w, kernel, expert, first - expert * in_expert, end - expert * in_expert,
                   tiles + expert * expert_bytes);
      first = end;
    }
  });
}

}  // namespace

PackedWeight::PackedWeight(graph::WeightPtr weight, const KernelTable& table, const uint8_t* tiles,
                           std::shared_ptr<const void> keeper)
    : weight_(std::move(weight)),
      table_(table),
      kernel_(kernel_of(*weight_, table)),
      tiles_(tiles),
      keeper_(std::move(keeper)) {}

int64_t PackedWeight::bytes() const {
  return weight_->experts() * pieces_of(*weight_, kernel_) * bytes_of_piece(*weight_, kernel_);
}

void PackedWeight::bind(int64_t expert, LinearArgs* args) const {
  const graph::Weight& w = *weight_;
  args->row_bytes = w.row_bytes();
  args->tile_bytes = bytes_of_piece(w, kernel_);
  args->weight = in_place(w, kernel_) ? w.row(expert * w.rows())
                                      : tiles_ + expert * pieces_of(w, kernel_) * args->tile_bytes;
  args->cols = w.cols();
}

int64_t PackedWeight::items() const {
  return (weight_->rows() + kernel_.item_rows - 1) / kernel_.item_rows;
}

void PackedWeight::bind_item(int64_t expert, int64_t item, LinearArgs* args) const {
  bind(expert, args);
  args->first = item * kernel_.item_rows;
  args->last = std::min(weight_->rows(), args->first + kernel_.item_rows);
}

PackedWeightPtr PackedWeight::slice(const graph::WeightPtr& part) const {
  const uint8_t* tiles = tiles_;
  if (kernel_.tile_rows != 0) {
    if (part->first_row() % kernel_.tile_rows != 0)
      throw RequestError("a slice of " + part->name() + " begins within a tile");
    tiles += part->first_row() / kernel_.tile_rows * bytes_of_piece(*weight_, kernel_);
  } else if (!in_place(*weight_, kernel_)) {
    tiles += part->first_row() * weight_->row_bytes();
  }
  return std::make_shared<PackedWeight>(part, table_, tiles, keeper_);
}

int64_t packed_size(const graph::Weight& w, const KernelTable& table) {
  const LinearKernel& kernel = kernel_of(w, table);
  return aligned(w.experts() * pieces_of(w, kernel) * bytes_of_piece(w, kernel));
}

PackedWeights attach_weights(const graph::Weights& weights, const KernelTable& table,
                             const uint8_t* data, int64_t bytes,
                             const std::shared_ptr<const void>& keeper) {
  PackedWeights packed{{}, data, bytes};
  int64_t at = 0;
  for (const graph::WeightPtr& w : weights) {
    const int64_t size = packed_size(*w, table);
    packed.weights.push_back(
        std::make_shared<PackedWeight>(w, table, size == 0 ? nullptr : data + at, keeper));
    at += size;
  }
  if (at != bytes)
    throw RequestError("packed weights have " + std::to_string(bytes) + " bytes, not " +
                       std::to_string(at));
  return packed;
}

PackedWeights pack_weights(const graph::Weights& weights, const KernelTable& table,
                           ThreadPool& pool, const std::function<void(int64_t)>& progress) {
  int64_t total = 0;
  for (const graph::WeightPtr& w : weights) total += packed_size(*w, table);
  const auto memory = std::make_shared<HugeBuffer>(memory_size(total));
  int64_t at = 0;
  for (const graph::WeightPtr& w : weights) {
    pack_one(*w, kernel_of(*w, table), pool, memory->data() + at);
    at += packed_size(*w, table);
    progress(at);
  }
  FileSet files;
  for (const graph::WeightPtr& w : weights) files.add(w->data());
  files.check_unchanged();
  return attach_weights(weights, table, memory->data(), total, memory);
}

}  // namespace oxibonsai::cpu
