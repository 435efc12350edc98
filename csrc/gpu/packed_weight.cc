#include "gpu/packed_weight.h"

#include <algorithm>
#include <utility>

#include "base/computed_bytes.h"
#include "base/file_set.h"
#include "gpu/unpack_weight.h"

namespace oxibonsai::gpu {
namespace {

// The fewest rows of a block of threads (gpu/kernels/linear_float.h) times the largest grid.
constexpr int64_t kMostRows = int64_t{8} * 65535;
// Bytes of a file that go to the device at once.
constexpr int64_t kPieceBytes = 16 << 20;

void pack_planes(const graph::Weight& w, Backend& backend, ThreadPool& pool, Address to) {
  const int64_t bytes = unpack_bytes(w);
  std::vector<uint8_t> planes(static_cast<size_t>(bytes));
  const int64_t piece = std::clamp<int64_t>(w.rows() / (4 * pool.size()), 1, 256);
  for (int64_t expert = 0; expert < w.experts(); ++expert) {
    pool.for_each(w.rows(), piece, [&](int64_t first, int64_t last) {
      split_rows(w, expert, first, last, planes.data());
    });
    backend.upload(planes.data(), to + expert * bytes, bytes);
  }
}

void pack_floats(const graph::Weight& w, Backend& backend, Address to) {
  const int64_t rows = w.rows() * w.experts();
  const int64_t piece = std::max<int64_t>(1, kPieceBytes / w.row_bytes());
  for (int64_t first = 0; first < rows; first += piece) {
    const int64_t last = std::min(rows, first + piece);
    w.check_finite(first, last);
    backend.upload(w.data() + first * w.row_bytes(), to + first * w.row_bytes(),
                   (last - first) * w.row_bytes());
    w.release(first, last);
  }
}

}  // namespace

PackedWeight::PackedWeight(graph::WeightPtr weight, Address data,
                           std::shared_ptr<const void> keeper)
    : weight_(std::move(weight)), data_(data), keeper_(std::move(keeper)) {
  if (weight_->integer()) {
    form_ = form_name(weight_->type());
    integer_args_ = unpack_args(*weight_, 0, weight_->rows());
  } else {
    form_ = quant::traits(weight_->type()).name;
  }
}

args::FloatLinearArgs PackedWeight::float_args() const {
  args::FloatLinearArgs a{};
  a.row_bytes = static_cast<uint64_t>(weight_->row_bytes());
  a.expert_bytes = static_cast<uint64_t>(weight_->rows() * weight_->row_bytes());
  a.rows = static_cast<uint32_t>(weight_->rows());
  a.cols = static_cast<uint32_t>(weight_->cols());
  return a;
}

std::shared_ptr<const PackedWeight> PackedWeight::slice(const graph::WeightPtr& part) const {
  auto sliced = std::make_shared<PackedWeight>(part, data_, keeper_);
  if (weight_->integer())
    sliced->integer_args_ = unpack_args(*weight_, part->first_row(), part->rows());
  else
    sliced->data_ = data_ + part->first_row() * weight_->row_bytes();
  return sliced;
}

int64_t packed_size(const graph::Weight& w) {
  if (w.rows() > kMostRows)
    throw UnsupportedError(w.name() + " has " + std::to_string(w.rows()) +
                           " rows; a GPU takes at most " + std::to_string(kMostRows));
  return w.experts() * (w.integer() ? unpack_bytes(w) : w.rows() * w.row_bytes());
}

std::vector<PackedWeightPtr> pack_weights(const graph::Weights& weights, Backend& backend,
                                          ThreadPool& pool,
                                          const std::function<void(int64_t)>& progress) {
  std::vector<PackedWeightPtr> packed;
  int64_t done = 0;
  for (const graph::WeightPtr& w : weights) {
    const int64_t bytes = packed_size(*w);
    const BufferPtr buffer = backend.allocate(bytes);
    const Address to{buffer.get(), 0};
    const auto held = ComputedBytes::hold(w->data());
    if (w->integer())
      pack_planes(*w, backend, pool, to);
    else
      pack_floats(*w, backend, to);
    packed.push_back(std::make_shared<PackedWeight>(w, to, buffer));
    progress(done += bytes);
  }
  FileSet files;
  for (const graph::WeightPtr& w : weights) files.add(w->data());
  files.check_unchanged();
  return packed;
}

}  // namespace oxibonsai::gpu
