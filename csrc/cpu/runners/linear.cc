// Linear layers that share their input: items are runs of rows of all their weights, one after the
// other. A weight's inner axis is never cut.

#include <algorithm>

#include "cpu/runners/row_parts.h"

namespace oxibonsai::cpu {
namespace {

class LinearRunner : public Runner {
 public:
  LinearRunner(const graph::Linear& op, const RunnerContext& c) : x_(c.value(op.x)) {
    if (op.add != graph::kNoValue) add_ = c.value(op.add);
    for (size_t i = 0; i < op.weights.size(); ++i) {
      const bool biased = !op.biases.empty() && op.biases[i] != nullptr;
      parts_.push_back(
          {c.packed(op.weights[i]), c.value(op.out[i]), biased ? op.biases[i] : nullptr});
      pieces_ += parts_.back().weight->items();
    }
  }

  // For one panel of tokens after the other, all rows.
  int64_t items(const Step& s, int) const override {
    return (s.rows_of(x_) + kPanelTokens - 1) / kPanelTokens * pieces_;
  }

  void run(const Step& s, int, int64_t item) const override {
    const int64_t panel = item / pieces_;
    int64_t piece = item % pieces_;
    const Part* part = parts_.data();
    for (; piece >= part->weight->items(); ++part) piece -= part->weight->items();
    LinearArgs a{};
    part->weight->bind_item(0, piece, &a);
    if (x_.type == graph::ValueType::kInt8) {
      a.x = s.quantized(x_);
    } else {
      a.xf = s.floats(x_);
    }
    a.first_token = panel * kPanelTokens;
    a.last_token = std::min(s.rows_of(x_), a.first_token + kPanelTokens);
    a.bias = part->bias != nullptr ? part->bias->data() : nullptr;
    a.add = add_.storage >= 0 ? s.floats(add_) : nullptr;
    a.y = s.floats(part->out);
    a.stride = part->weight->weight().rows();
    part->weight->kernel().run(a);
  }

 private:
  struct Part {
    PackedWeightPtr weight;
    ValueRef out;
    graph::Vector bias;
  };

  const ValueRef x_;
  ValueRef add_;  // of no storage: nothing is added
  std::vector<Part> parts_;
  int64_t pieces_ = 0;
};

// Phase 0 brings the rows of each head together, rounded where the weight wants it; an item of
// phase 1 is a run of rows of one head's matrix, for a panel of tokens.
class HeadLinearRunner : public Runner {
 public:
  HeadLinearRunner(const graph::HeadLinear& op, const RunnerContext& c)
      : x_(c.value(op.x)),
        out_(c.value(op.out)),
        weight_(c.packed(op.weight)),
        tables_(reads_tables(weight_->kernel())),
        pieces_(weight_->items()),
        workspace_(c.workspace) {}

  int phases() const override { return 2; }

  int64_t items(const Step& s, int phase) const override {
    const int64_t heads = weight_->weight().experts();
    return phase == 0 ? s.rows_of(x_) * heads : panels(s) * heads * pieces_;
  }

  int64_t workspace_bytes(const Step& s) const override {
    const graph::Weight& w = weight_->weight();
    const int64_t rows = s.rows_of(x_) * w.experts();
    return w.integer() ? quantized_bytes(rows, w.cols(), tables_)
                       : rows * w.cols() * static_cast<int64_t>(sizeof(float));
  }

  void run(const Step& s, int phase, int64_t item) const override {
    if (phase == 0)
      gather(s, item);
    else
      multiply(s, item);
  }

 private:
  int64_t panels(const Step& s) const { return (s.rows_of(x_) + kPanelTokens - 1) / kPanelTokens; }

  QuantizedRows gathered(const Step& s) const {
    const graph::Weight& w = weight_->weight();
    return quantized_rows(s.memory[static_cast<size_t>(workspace_)], s.rows_of(x_) * w.experts(),
                          w.cols(), tables_);
  }

  void gather(const Step& s, int64_t item) const {
    const graph::Weight& w = weight_->weight();
    const int64_t tokens = s.rows_of(x_);
    const float* from = s.row(x_, item % tokens) + item / tokens * w.cols();
    if (w.integer())
      quantize_cols(*s.kernels, from, gathered(s), item, 0, w.cols());
    else
      std::copy_n(from, w.cols(), s.workspace_floats(workspace_) + item * w.cols());
  }

  void multiply(const Step& s, int64_t item) const {
    const graph::Weight& w = weight_->weight();
    const int64_t head = item / pieces_ % w.experts();
    const int64_t first = item / pieces_ / w.experts() * kPanelTokens;
    const int64_t row = head * s.rows_of(x_) + first;
    LinearArgs a{};
    weight_->bind_item(head, item % pieces_, &a);
    if (w.integer())
      a.x = quantized_from(gathered(s), row, 0);
    else
      a.xf = s.workspace_floats(workspace_) + row * w.cols();
    a.last_token = std::min(s.rows_of(x_) - first, kPanelTokens);
    a.y = s.row(out_, first) + head * w.rows();
    a.stride = out_.cols;
    weight_->kernel().run(a);
  }

  const ValueRef x_, out_;
  const PackedWeightPtr weight_;
  const bool tables_;
  const int64_t pieces_;
  const int workspace_;
};

class RoundInt8Runner : public Runner {
 public:
  RoundInt8Runner(const ValueRef& x, const ValueRef& out)
      : x_(x), out_(out), count_((out.cols + kPartCols - 1) / kPartCols) {}
  int64_t items(const Step& s, int) const override { return s.rows_of(out_) * count_; }
  void run(const Step& s, int, int64_t item) const override {
    const int64_t row = item / count_;
    const int64_t first = item % count_ * kPartCols;
    quantize_cols(*s.kernels, s.row(x_, row) + first, s.quantized(out_), row, first,
                  std::min(kPartCols, out_.cols - first));
  }

 private:
  const ValueRef x_, out_;
  const int64_t count_;
};

// Items are runs of columns, over all rows.
class ObserveRunner : public Runner {
 public:
  ObserveRunner(const graph::Observe& op, const ValueRef& x) : sums_(op.sums), x_(x) {}
  int64_t items(const Step& s, int) const override {
    return s.rows_of(x_) == 0 ? 0 : (x_.cols + kItemCols - 1) / kItemCols;
  }
  void run(const Step& s, int, int64_t item) const override {
    const int64_t first = item * kItemCols;
    sums_->add(s.floats(x_), s.rows_of(x_), first, std::min(first + kItemCols, x_.cols));
  }

 private:
  static constexpr int64_t kItemCols = 64;
  const std::shared_ptr<graph::InputSums> sums_;
  const ValueRef x_;
};

}  // namespace

RunnerPtr make_runner(const graph::Linear& op, const RunnerContext& c) {
  return std::make_unique<LinearRunner>(op, c);
}

RunnerPtr make_runner(const graph::HeadLinear& op, const RunnerContext& c) {
  return std::make_unique<HeadLinearRunner>(op, c);
}

RunnerPtr make_runner(const graph::RoundInt8& op, const RunnerContext& c) {
  return std::make_unique<RoundInt8Runner>(c.value(op.x), c.value(op.out));
}

RunnerPtr make_runner(const graph::Hadamard& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  // Blocks are powers of two, as the parts are.
  const int64_t cols = std::max(kPartCols, op.block);
  return row_parts(c.value(op.out), cols, [=](const Step& s, const RowPart& part, float* y) {
    const auto factors = [&](const graph::Vector& v) {
      return v != nullptr ? v->data() + part.first : nullptr;
    };
    s.kernels->hadamard({s.row(x, part.row) + part.first, factors(op.before), factors(op.after),
                         part.last - part.first, op.block, y + part.first});
  });
}

RunnerPtr make_runner(const graph::Observe& op, const RunnerContext& c) {
  return std::make_unique<ObserveRunner>(op, c.value(op.x));
}

}  // namespace oxibonsai::cpu
