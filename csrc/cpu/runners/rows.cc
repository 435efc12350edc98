// Ops that begin a pass, or choose rows or columns: an item is a row.

#include <algorithm>
#include <cstring>

#include "base/computed_bytes.h"
#include "cpu/runners/row_parts.h"

namespace oxibonsai::cpu {
namespace {

class EmbedRunner : public Runner {
 public:
  EmbedRunner(const graph::WeightPtr& table, const ValueRef& out, bool positions)
      : table_(table),
        held_(ComputedBytes::hold(table->data())),
        out_(out),
        positions_(positions) {}
  int64_t items(const Step& s, int) const override { return s.rows_of(out_); }
  void run(const Step& s, int, int64_t r) const override {
    const auto i = static_cast<size_t>(r);
    const int32_t row = positions_ ? s.positions[i] : s.batch->tokens[i];
    if (row < 0) {
      std::fill_n(s.row(out_, r), out_.cols, 0.0f);
    } else {
      table_->decode_row(row, s.row(out_, r));
    }
  }

 private:
  const graph::WeightPtr table_;
  const std::shared_ptr<const void> held_;
  const ValueRef out_;
  const bool positions_;
};

// The memory of an input is the caller's.
class InputRunner : public Runner {
 public:
  int64_t items(const Step&, int) const override { return 0; }
  void run(const Step&, int, int64_t) const override {}
};

class SelectOutputsRunner : public Runner {
 public:
  SelectOutputsRunner(const ValueRef& x, const ValueRef& out) : x_(x), out_(out) {}
  int64_t items(const Step& s, int) const override { return s.rows_of(out_); }
  void run(const Step& s, int, int64_t r) const override {
    std::memcpy(s.row(out_, r), s.row(x_, s.batch->outputs[static_cast<size_t>(r)]),
                static_cast<size_t>(out_.cols) * sizeof(float));
  }

 private:
  const ValueRef x_, out_;
};

class SplitRowsRunner : public Runner {
 public:
  SplitRowsRunner(const graph::SplitRows& op, const RunnerContext& c)
      : x_(c.value(op.x)), first_(c.value(op.first)), last_(c.value(op.last)) {}
  int64_t items(const Step& s, int) const override { return s.rows_of(x_); }
  void run(const Step& s, int, int64_t r) const override {
    const int64_t first = s.rows_of(first_);
    std::copy_n(s.row(x_, r), x_.cols, r < first ? s.row(first_, r) : s.row(last_, r - first));
  }

 private:
  const ValueRef x_, first_, last_;
};

class SelectColumnsRunner : public Runner {
 public:
  SelectColumnsRunner(const graph::SelectColumns& op, const RunnerContext& c)
      : op_(op), x_(c.value(op.x)), out_(c.value(op.out)) {}
  int64_t items(const Step& s, int) const override { return s.rows_of(out_); }
  void run(const Step& s, int, int64_t r) const override {
    const float* x = s.row(x_, r) + op_.first;
    float* y = s.row(out_, r);
    for (int64_t i = 0; i < out_.cols; i += op_.count, x += op_.period)
      std::copy_n(x, op_.count, y + i);
  }

 private:
  const graph::SelectColumns op_;
  const ValueRef x_, out_;
};

class TransposeHeadsRunner : public Runner {
 public:
  TransposeHeadsRunner(const graph::TransposeHeads& op, const RunnerContext& c)
      : op_(op), x_(c.value(op.x)), out_(c.value(op.out)) {}
  int64_t items(const Step& s, int) const override { return s.rows_of(out_); }
  void run(const Step& s, int, int64_t r) const override {
    const int64_t width = x_.cols / op_.outer / op_.inner;
    const float* x = s.row(x_, r);
    float* y = s.row(out_, r);
    for (int64_t i = 0; i < op_.inner; ++i)
      for (int64_t o = 0; o < op_.outer; ++o, y += width)
        std::copy_n(x + (o * op_.inner + i) * width, width, y);
  }

 private:
  const graph::TransposeHeads op_;
  const ValueRef x_, out_;
};

}  // namespace

RunnerPtr make_runner(const graph::Embed& op, const RunnerContext& c) {
  return std::make_unique<EmbedRunner>(op.weight, c.value(op.out), false);
}

RunnerPtr make_runner(const graph::EmbedPositions& op, const RunnerContext& c) {
  return std::make_unique<EmbedRunner>(op.weight, c.value(op.out), true);
}

RunnerPtr make_runner(const graph::Input&, const RunnerContext&) {
  return std::make_unique<InputRunner>();
}

RunnerPtr make_runner(const graph::InsertRows& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const ValueRef rows = c.value(op.rows);
  const ValueRef out = c.value(op.out);
  return row_parts(out, out.cols, [=](const Step& s, const RowPart& part, float* y) {
    const int32_t token = s.batch->tokens[static_cast<size_t>(part.row)];
    const float* old = s.row(x, part.row);
    if (token >= 0) {
      std::copy_n(old, out.cols, y);
      return;
    }
    const float* inserted = s.row(rows, -1 - int64_t{token}) + op.first;
    if (op.added) {
      s.kernels->add(old, inserted, out.cols, y);
    } else {
      std::copy_n(inserted, out.cols, y);
    }
  });
}

RunnerPtr make_runner(const graph::SelectOutputs& op, const RunnerContext& c) {
  return std::make_unique<SelectOutputsRunner>(c.value(op.x), c.value(op.out));
}

RunnerPtr make_runner(const graph::JoinHeads& op, const RunnerContext& c) {
  const ValueRef a = c.value(op.a);
  const ValueRef b = c.value(op.b);
  const ValueRef out = c.value(op.out);
  return row_parts(out, out.cols, [=](const Step& s, const RowPart& part, float* y) {
    const int64_t from_a = a.cols / op.heads;
    const int64_t from_b = b.cols / op.heads;
    for (int64_t h = 0; h < op.heads; ++h) {
      y = std::copy_n(s.row(a, part.row) + h * from_a, from_a, y);
      y = std::copy_n(s.row(b, part.row) + h * from_b, from_b, y);
    }
  });
}

RunnerPtr make_runner(const graph::JoinRows& op, const RunnerContext& c) {
  const ValueRef a = c.value(op.a);
  const ValueRef b = c.value(op.b);
  const ValueRef out = c.value(op.out);
  return row_parts(out, out.cols, [=](const Step& s, const RowPart& part, float* y) {
    const int64_t first = s.rows_of(a);
    const float* x = part.row < first ? s.row(a, part.row) : s.row(b, part.row - first);
    std::copy_n(x, out.cols, y);
  });
}

RunnerPtr make_runner(const graph::SplitRows& op, const RunnerContext& c) {
  return std::make_unique<SplitRowsRunner>(op, c);
}

RunnerPtr make_runner(const graph::SelectColumns& op, const RunnerContext& c) {
  return std::make_unique<SelectColumnsRunner>(op, c);
}

RunnerPtr make_runner(const graph::TransposeHeads& op, const RunnerContext& c) {
  return std::make_unique<TransposeHeadsRunner>(op, c);
}

}  // namespace oxibonsai::cpu
