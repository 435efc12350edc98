// Mixtures of experts. Routing is by rows and in plain C++, the same on every tier.

#include <algorithm>
#include <numeric>
#include <vector>

#include "cpu/quantized_rows.h"
#include "cpu/runner.h"

namespace oxibonsai::cpu {
namespace {

using graph::Route;

class RouteRunner : public Runner {
 public:
  RouteRunner(const Route& op, const RunnerContext& c)
      : op_(op),
        scores_(c.value(op.scores)),
        experts_(c.value(op.experts)),
        weights_(c.value(op.weights)) {}

  int64_t items(const Step& s, int) const override { return s.rows_of(scores_); }

  void run(const Step& s, int, int64_t r) const override {
    const float* scores = s.row(scores_, r);
    const auto count = static_cast<size_t>(scores_.cols);
    thread_local std::vector<float> probability, rank;
    thread_local std::vector<int32_t> order;
    probability.assign(scores, scores + count);
    if (op_.scoring == Route::Scoring::kSoftmax) softmax(s, probability.data(), count);
    if (op_.scoring == Route::Scoring::kSigmoid) sigmoid(s, probability.data(), count);
    rank = probability;
    if (op_.selection_bias != nullptr)
      for (size_t i = 0; i < count; ++i) rank[i] += (*op_.selection_bias)[i];
    order.resize(count);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + op_.k, order.end(), [](int32_t a, int32_t b) {
      const float x = rank[static_cast<size_t>(a)];
      const float y = rank[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    });
    std::copy_n(order.begin(), op_.k, s.index_row(experts_, r));
    float* weights = s.row(weights_, r);
    for (int i = 0; i < op_.k; ++i) weights[i] = probability[static_cast<size_t>(order[i])];
    if (op_.scoring == Route::Scoring::kSoftmaxOfChosen)
      softmax(s, weights, static_cast<size_t>(op_.k));
    if (op_.normalize) {
      float sum = 0.0f;
      for (int i = 0; i < op_.k; ++i) sum += weights[i];
      for (int i = 0; i < op_.k; ++i) weights[i] /= sum;
    }
    for (int i = 0; i < op_.k; ++i) weights[i] *= op_.scale;
  }

 private:
  // Sums are in the order of the experts.
  static void softmax(const Step& s, float* x, size_t n) {
    const float max = *std::max_element(x, x + n);
    for (size_t i = 0; i < n; ++i) x[i] -= max;
    s.kernels->exp(x, static_cast<int64_t>(n), x);
    float sum = 0.0f;
    for (size_t i = 0; i < n; ++i) sum += x[i];
    for (size_t i = 0; i < n; ++i) x[i] /= sum;
  }

  static void sigmoid(const Step& s, float* x, size_t n) {
    for (size_t i = 0; i < n; ++i) x[i] = -x[i];
    s.kernels->exp(x, static_cast<int64_t>(n), x);
    for (size_t i = 0; i < n; ++i) x[i] = 1.0f / (1.0f + x[i]);
  }

  const Route op_;
  const ValueRef scores_, experts_, weights_;
};

// An item is a run of rows of the matrix of one chosen expert: only those are read.
class ExpertLinearRunner : public Runner {
 public:
  ExpertLinearRunner(const graph::ExpertLinear& op, const RunnerContext& c)
      : x_(c.value(op.x)),
        experts_(c.value(op.experts)),
        out_(c.value(op.out)),
        weight_(c.packed(op.weight)),
        pieces_((op.weight->rows() + kItemRows - 1) / kItemRows) {}

  int64_t items(const Step& s, int) const override { return s.rows_of(out_) * pieces_; }

  void run(const Step& s, int, int64_t item) const override {
    const int64_t r = item / pieces_;
    const int64_t token = r / experts_.cols;
    const int32_t expert = s.index_row(experts_, token)[r % experts_.cols];
    const int64_t x_row = x_.space == out_.space ? r : token;
    const graph::Weight& w = weight_->weight();
    LinearArgs a{};
    weight_->bind(expert, &a);
    a.first = item % pieces_ * kItemRows;
    a.last = std::min(w.rows(), a.first + kItemRows);
    if (x_.type == graph::ValueType::kInt8) {
      a.x = quantized_from(s.quantized(x_), x_row, 0);
    } else {
      a.xf = s.row(x_, x_row);
    }
    a.last_token = 1;
    a.y = s.row(out_, r);
    a.stride = w.rows();
    weight_->kernel().run(a);
  }

 private:
  const ValueRef x_, experts_, out_;
  const PackedWeightPtr weight_;
  const int64_t pieces_;
};

class CombineRunner : public Runner {
 public:
  CombineRunner(const graph::Combine& op, const RunnerContext& c)
      : x_(c.value(op.x)), weights_(c.value(op.weights)), out_(c.value(op.out)) {}

  int64_t items(const Step& s, int) const override { return s.rows_of(out_); }

  void run(const Step& s, int, int64_t r) const override {
    const float* weights = s.row(weights_, r);
    float* out = s.row(out_, r);
    for (int64_t e = 0; e < weights_.cols; ++e) {
      const float* x = s.row(x_, r * weights_.cols + e);
      const float w = weights[e];
      for (int64_t i = 0; i < out_.cols; ++i) out[i] = e == 0 ? w * x[i] : out[i] + w * x[i];
    }
  }

 private:
  const ValueRef x_, weights_, out_;
};

}  // namespace

RunnerPtr make_runner(const graph::Route& op, const RunnerContext& c) {
  return std::make_unique<RouteRunner>(op, c);
}

RunnerPtr make_runner(const graph::ExpertLinear& op, const RunnerContext& c) {
  return std::make_unique<ExpertLinearRunner>(op, c);
}

RunnerPtr make_runner(const graph::Combine& op, const RunnerContext& c) {
  return std::make_unique<CombineRunner>(op, c);
}

}  // namespace oxibonsai::cpu
