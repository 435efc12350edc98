#pragma once

// Runners of ops in which a row of the output depends on the same row of the inputs. An item is a
// part of a row where parts don't depend on each other, so that all threads work on a single token
// too.

#include <algorithm>
#include <utility>
#include <vector>

#include "cpu/quantized_rows.h"
#include "cpu/runner.h"

namespace oxibonsai::cpu {

// Columns of a part: a multiple of the 32 that share an activation scale.
constexpr int64_t kPartCols = 1024;

struct RowPart {
  int64_t row, first, last;  // columns first .. last - 1
};

class RowPartsRunner : public Runner {
 public:
  // `part_cols` columns are an item; the output's width for whole rows.
  RowPartsRunner(const ValueRef& out, int64_t part_cols)
      : out_(out), cols_(part_cols), count_((out.cols + part_cols - 1) / part_cols) {}

  int64_t items(const Step& s, int) const override { return s.rows_of(out_) * count_; }

  void run(const Step& s, int, int64_t item) const override {
    const int64_t first = item % count_ * cols_;
    const RowPart part{item / count_, first, std::min(first + cols_, out_.cols)};
    if (out_.type != graph::ValueType::kInt8) return write(s, part, s.row(out_, part.row));
    thread_local std::vector<float> scratch;
    if (static_cast<int64_t>(scratch.size()) < out_.cols)
      scratch.resize(static_cast<size_t>(out_.cols));
    write(s, part, scratch.data());
    quantize_cols(*s.kernels, scratch.data() + part.first, s.quantized(out_), part.row, part.first,
                  part.last - part.first);
  }

 protected:
  // Fills columns part.first .. part.last - 1 of the row y.
  virtual void write(const Step& s, const RowPart& part, float* y) const = 0;

 private:
  const ValueRef out_;
  const int64_t cols_, count_;
};

// A RowPartsRunner whose write() is a function object.
template <class Write>
class RowPartsRunnerOf final : public RowPartsRunner {
 public:
  RowPartsRunnerOf(const ValueRef& out, int64_t part_cols, Write write)
      : RowPartsRunner(out, part_cols), write_(std::move(write)) {}

 protected:
  void write(const Step& s, const RowPart& part, float* y) const override { write_(s, part, y); }

 private:
  const Write write_;
};

template <class Write>
RunnerPtr row_parts(const ValueRef& out, int64_t part_cols, Write write) {
  return std::make_unique<RowPartsRunnerOf<Write>>(out, part_cols, std::move(write));
}

}  // namespace oxibonsai::cpu
