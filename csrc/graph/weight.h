#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/data_owner.h"
#include "quant/inspect.h"
#include "quant/quant_type.h"

namespace oxibonsai::graph {

// Matrices of a checkpoint in their stored form: `experts` of them, [rows, cols] each, one after
// the other. Most tensors hold one. Shared; a device packs it for itself.
class Weight {
 public:
  // `owner`, which may be null, keeps `data` alive: experts * rows * row_bytes bytes.
  Weight(std::string name, quant::QuantType type, int64_t rows, int64_t cols, const uint8_t* data,
         std::shared_ptr<const DataOwner> owner, int64_t experts = 1);

  const std::string& name() const { return name_; }
  quant::QuantType type() const { return type_; }
  int64_t experts() const { return experts_; }
  int64_t rows() const { return rows_; }  // of one expert
  int64_t cols() const { return cols_; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t bytes() const { return experts_ * rows_ * row_bytes_; }
  const uint8_t* data() const { return data_; }
  // Row r of all experts' rows. In memory, the rows of one expert follow each other.
  const uint8_t* row(int64_t r) const {
    return data_ + r / rows_ * expert_bytes_ + r % rows_ * row_bytes_;
  }

  // Whether a linear layer rounds its input to int8 for it.
  bool integer() const;

  // Row r of all experts' rows as float32: cols values.
  void decode_row(int64_t r, float* out) const;

  // A look at every block. RequestError for a slice of experts.
  quant::BlockReport inspect() const;
  // FormatError where a scale or value in rows first .. last - 1, of one expert, is not finite.
  void check_finite(int64_t first, int64_t last) const;
  // These rows, of one expert, won't be read soon.
  void release(int64_t first, int64_t last) const;
  // Whether the rows are a file's, mapped, so that a copy takes no memory once they are released.
  bool maps_file() const { return owner_ != nullptr && owner_->maps_file(); }

  // Rows first .. last - 1 of each expert. A device that has packed a whole matrix uses that for
  // its slices; a slice of several experts is packed by itself.
  static std::shared_ptr<Weight> slice(const std::shared_ptr<Weight>& whole, int64_t first,
                                       int64_t last);
  // Experts first .. last - 1.
  static std::shared_ptr<Weight> slice_experts(const std::shared_ptr<Weight>& whole, int64_t first,
                                               int64_t last);
  // The matrix that this is a slice of, and from which row on; null and 0 where it is none.
  const std::shared_ptr<Weight>& whole() const { return whole_; }
  int64_t first_row() const { return first_row_; }

 private:
  const std::string name_;
  const quant::QuantType type_;
  const int64_t rows_, cols_, row_bytes_, experts_;
  int64_t expert_bytes_;  // from one expert's first row to the next one's
  const uint8_t* const data_;
  const std::shared_ptr<const DataOwner> owner_;
  std::shared_ptr<Weight> whole_;
  int64_t first_row_ = 0;
};

using WeightPtr = std::shared_ptr<Weight>;
using Weights = std::vector<WeightPtr>;

}  // namespace oxibonsai::graph
