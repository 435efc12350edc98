#include "graph/weight.h"

#include <utility>

#include "base/check.h"
#include "base/computed_bytes.h"
#include "quant/unpack.h"

namespace oxibonsai::graph {

Weight::Weight(std::string name, quant::QuantType type, int64_t rows, int64_t cols,
               const uint8_t* data, std::shared_ptr<const DataOwner> owner, int64_t experts)
    : name_(std::move(name)),
      type_(type),
      rows_(rows),
      cols_(cols),
      row_bytes_(quant::row_bytes(type, cols)),
      experts_(experts),
      expert_bytes_(rows * row_bytes_),
      data_(data),
      owner_(std::move(owner)) {
  if (rows < 1 || cols < 1 || experts < 1)
    throw FormatError(name_ + " has no rows or no columns: not a weight");
}

bool Weight::integer() const { return quant::is_integer(type_); }

void Weight::decode_row(int64_t r, float* out) const {
  quant::traits(type_).decode(row(r), out, cols_);
}

quant::BlockReport Weight::inspect() const {
  if (expert_bytes_ != rows_ * row_bytes_)
    throw RequestError(name_ + ": a slice of experts is inspected with its whole tensor");
  const auto held = ComputedBytes::hold(data_);
  return quant::inspect(type_, data_, experts_ * rows_ * cols_);
}

void Weight::check_finite(int64_t first, int64_t last) const {
  const int64_t block = quant::find_not_finite(type_, row(first), (last - first) * cols_);
  if (block < 0) return;
  const int64_t weight = block * quant::traits(type_).group;
  throw FormatError("tensor " + name_ + " has a scale or value that is not finite (row " +
                    std::to_string(first + weight / cols_) + ", column " +
                    std::to_string(weight % cols_) +
                    "): the file is damaged, or its type has another layout");
}

void Weight::release(int64_t first, int64_t last) const {
  if (owner_ != nullptr) owner_->release(row(first), (last - first) * row_bytes_);
}

std::shared_ptr<Weight> Weight::slice(const std::shared_ptr<Weight>& whole, int64_t first,
                                      int64_t last) {
  if (first < 0 || last <= first || last > whole->rows())
    throw RequestError(whole->name() + " has no rows " + std::to_string(first) + " to " +
                       std::to_string(last));
  auto part = std::make_shared<Weight>(whole->name_, whole->type_, last - first, whole->cols_,
                                       whole->row(first), whole->owner_, whole->experts_);
  part->expert_bytes_ = whole->expert_bytes_;
  if (whole->experts_ == 1) part->whole_ = whole;
  part->first_row_ = first;
  return part;
}

std::shared_ptr<Weight> Weight::slice_experts(const std::shared_ptr<Weight>& whole, int64_t first,
                                              int64_t last) {
  if (first < 0 || last <= first || last > whole->experts())
    throw RequestError(whole->name() + " has no experts " + std::to_string(first) + " to " +
                       std::to_string(last));
  auto part =
      std::make_shared<Weight>(whole->name_, whole->type_, whole->rows_, whole->cols_,
                               whole->row(first * whole->rows_), whole->owner_, last - first);
  part->expert_bytes_ = whole->expert_bytes_;
  return part;
}

}  // namespace oxibonsai::graph
