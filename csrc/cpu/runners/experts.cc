// Mixtures of experts. Routing is by rows and in plain C++, the same on every tier.

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "cpu/quantized_rows.h"
#include "cpu/runners/row_parts.h"

namespace oxibonsai::cpu {
namespace {

using graph::kPanelColumns;
using graph::kPanelExpert;
using graph::kPanelFirst;
using graph::kPanelRows;
using graph::kPanelSource;
using graph::Route;

static_assert(kPanelRows == kPanelTokens);

// Of SparseMixer: twice the jitter of its training.
constexpr float kNear = 0.02f;

// Phase 0 chooses the experts of each token, phase 1 sorts all choices by expert.
class RouteRunner : public Runner {
 public:
  RouteRunner(const Route& op, const RunnerContext& c)
      : op_(op),
        scores_(c.value(op.scores)),
        weights_(c.value(op.weights)),
        places_(c.value(op.places)),
        panels_(c.value(op.panels)) {}

  int phases() const override { return 2; }

  // The choices of a single token are sorted by whoever chose.
  int64_t items(const Step& s, int phase) const override {
    const int64_t rows = s.rows_of(scores_);
    return phase == 0 ? rows : rows > 1 ? 1 : 0;
  }

  void run(const Step& s, int phase, int64_t item) const override {
    if (phase == 0) choose(s, item);
    if (phase == 1 || s.rows_of(scores_) == 1) sort(s);
  }

 private:
  void choose(const Step& s, int64_t r) const {
    const float* scores = s.row(scores_, r);
    const auto count = static_cast<size_t>(scores_.cols);
    thread_local std::vector<float> probability, rank;
    thread_local std::vector<int32_t> order;
    if (op_.scoring == Route::Scoring::kSparseMixer) return choose_sparsely(s, r);
    probability.assign(scores, scores + count);
    if (op_.scoring == Route::Scoring::kSoftmax) softmax(s, probability.data(), count);
    if (op_.scoring == Route::Scoring::kSigmoid) sigmoid(s, probability.data(), count);
    rank = probability;
    if (op_.selection_bias != nullptr)
      for (size_t i = 0; i < count; ++i) rank[i] += (*op_.selection_bias)[i];
    candidates(rank, &order);
    first_by_rank(rank, op_.k, &order);
    // Until they are sorted, the places hold experts.
    std::copy_n(order.begin(), op_.k, s.index_row(places_, r));
    float* weights = s.row(weights_, r);
    for (int i = 0; i < op_.k; ++i)
      weights[i] = probability[static_cast<size_t>(order[static_cast<size_t>(i)])];
    if (op_.scoring == Route::Scoring::kSoftmaxOfChosen)
      softmax(s, weights, static_cast<size_t>(op_.k));
    if (op_.normalize) {
      float sum = 0.0f;
      for (int i = 0; i < op_.k; ++i) sum += weights[i];
      for (int i = 0; i < op_.k; ++i) weights[i] /= sum;
    }
    finish(order.data(), weights);
  }

  void finish(const int32_t* chosen, float* weights) const {
    for (int i = 0; i < op_.k; ++i) weights[i] *= op_.scale;
    if (op_.expert_scale == nullptr) return;
    for (int i = 0; i < op_.k; ++i)
      weights[i] *= (*op_.expert_scale)[static_cast<size_t>(chosen[i])];
  }

  // One expert after the other: the best of those that are left, by its share of a softmax over
  // those of them that are at most kNear below it, relative to the larger of both.
  void choose_sparsely(const Step& s, int64_t r) const {
    const float* scores = s.row(scores_, r);
    const auto count = static_cast<size_t>(scores_.cols);
    thread_local std::vector<char> left;
    thread_local std::vector<float> near;
    left.assign(count, 1);
    near.resize(count);
    int32_t* chosen = s.index_row(places_, r);
    float* weights = s.row(weights_, r);
    for (int i = 0; i < op_.k; ++i) {
      size_t best = count;
      for (size_t j = 0; j < count; ++j)
        if (left[j] != 0 && (best == count || scores[j] > scores[best])) best = j;
      const float max = scores[best];
      for (size_t j = 0; j < count; ++j) near[j] = scores[j] - max;
      s.kernels->exp(near.data(), static_cast<int64_t>(count), near.data());
      float sum = 0.0f;
      for (size_t j = 0; j < count; ++j) {
        const float larger = std::max(std::fabs(scores[j]), max);
        if (left[j] != 0 && !((max - scores[j]) / larger > kNear)) sum += near[j];
      }
      left[best] = 0;
      chosen[i] = static_cast<int32_t>(best);
      weights[i] = 1.0f / sum;
    }
    finish(chosen, weights);
  }

  // The first n of `order` become those of the highest rank, the lower index where two are equal.
  static void first_by_rank(const std::vector<float>& rank, int n, std::vector<int32_t>* order) {
    std::partial_sort(order->begin(), order->begin() + n, order->end(), [&](int32_t a, int32_t b) {
      const float x = rank[static_cast<size_t>(a)];
      const float y = rank[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    });
  }

  // All experts, or those of the groups that are kept.
  void candidates(const std::vector<float>& rank, std::vector<int32_t>* order) const {
    order->resize(rank.size());
    std::iota(order->begin(), order->end(), 0);
    if (op_.kept_groups == op_.groups) return;
    const size_t size = rank.size() / static_cast<size_t>(op_.groups);
    thread_local std::vector<float> best, group_rank;
    thread_local std::vector<int32_t> group_order;
    group_rank.clear();
    for (size_t first = 0; first < rank.size(); first += size) {
      const auto begin = rank.begin() + static_cast<std::ptrdiff_t>(first);
      best.assign(begin, begin + static_cast<std::ptrdiff_t>(size));
      std::partial_sort(best.begin(), best.begin() + op_.best_of_group, best.end(),
                        std::greater<float>());
      float sum = 0.0f;
      for (int i = 0; i < op_.best_of_group; ++i) sum += best[static_cast<size_t>(i)];
      group_rank.push_back(sum);
    }
    group_order.resize(group_rank.size());
    std::iota(group_order.begin(), group_order.end(), 0);
    first_by_rank(group_rank, op_.kept_groups, &group_order);
    order->clear();
    for (int g = 0; g < op_.kept_groups; ++g)
      for (size_t i = 0; i < size; ++i)
        order->push_back(static_cast<int32_t>(
            static_cast<size_t>(group_order[static_cast<size_t>(g)]) * size + i));
  }

  void sort(const Step& s) const {
    const auto rows = static_cast<int32_t>(s.rows_of(panels_));
    int32_t* places = s.index_row(places_, 0);
    thread_local std::vector<int32_t> next;  // by expert: its first row, then the next one to fill
    next.assign(static_cast<size_t>(scores_.cols) + 1, 0);
    for (int32_t i = 0; i < rows; ++i) ++next[static_cast<size_t>(places[i]) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    int64_t panel = 0;
    for (int64_t e = 0; e < scores_.cols; ++e)
      for (int32_t r = next[static_cast<size_t>(e)]; r < next[static_cast<size_t>(e) + 1];
           r += kPanelRows, ++panel) {
        s.index_row(panels_, panel)[kPanelFirst] = r;
        s.index_row(panels_, panel)[kPanelExpert] = static_cast<int32_t>(e);
      }
    for (; panel < rows; ++panel) s.index_row(panels_, panel)[kPanelFirst] = rows;
    for (int32_t i = 0; i < rows; ++i) {
      const int32_t row = next[static_cast<size_t>(places[i])]++;
      s.index_row(panels_, row)[kPanelSource] = i;
      places[i] = row;
    }
  }

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
  const ValueRef scores_, weights_, places_, panels_;
};

// An item is a run of rows of the matrix of one expert, for a panel of its inputs: only experts
// that were chosen are read.
class ExpertLinearRunner : public Runner {
 public:
  ExpertLinearRunner(const graph::ExpertLinear& op, const RunnerContext& c)
      : x_(c.value(op.x)),
        panels_(c.value(op.panels)),
        out_(c.value(op.out)),
        weight_(c.packed(op.weight)),
        bias_(op.bias),
        pieces_(weight_->items()) {}

  int64_t items(const Step& s, int) const override { return most_panels(s) * pieces_; }

  void run(const Step& s, int, int64_t item) const override {
    const int64_t rows = s.rows_of(panels_);
    const int64_t index = item / pieces_;
    const int32_t* panel = s.index_row(panels_, index);
    const int64_t first = panel[kPanelFirst];
    if (first == rows) return;
    const int64_t last = index + 1 < rows ? s.index_row(panels_, index + 1)[kPanelFirst] : rows;
    const graph::Weight& w = weight_->weight();
    LinearArgs a{};
    weight_->bind_item(panel[kPanelExpert], item % pieces_, &a);
    if (x_.type == graph::ValueType::kInt8) {
      a.x = quantized_from(s.quantized(x_), first, 0);
    } else {
      a.xf = s.row(x_, first);
    }
    a.last_token = last - first;
    if (bias_ != nullptr) a.bias = bias_->data() + panel[kPanelExpert] * w.rows();
    a.y = s.row(out_, first);
    a.stride = w.rows();
    weight_->kernel().run(a);
  }

 private:
  // Only the last panel of an expert has less than kPanelRows rows.
  int64_t most_panels(const Step& s) const {
    const int64_t rows = s.rows_of(panels_);
    const int64_t experts = std::min(rows, weight_->weight().experts());
    return (rows + experts * (kPanelRows - 1)) / kPanelRows;
  }

  const ValueRef x_, panels_, out_;
  const PackedWeightPtr weight_;
  const graph::Vector bias_;
  const int64_t pieces_;
};

}  // namespace

RunnerPtr make_runner(const graph::Route& op, const RunnerContext& c) {
  return std::make_unique<RouteRunner>(op, c);
}

RunnerPtr make_runner(const graph::ExpertLinear& op, const RunnerContext& c) {
  return std::make_unique<ExpertLinearRunner>(op, c);
}

RunnerPtr make_runner(const graph::Dispatch& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const ValueRef panels = c.value(op.panels);
  ValueRef weights;
  if (op.weights != graph::kNoValue) weights = c.value(op.weights);
  return row_parts(c.value(op.out), kPartCols, [=](const Step& s, const RowPart& part, float* y) {
    const int32_t source = s.index_row(panels, part.row)[kPanelSource];
    const int64_t chosen = s.rows_of(panels) / s.rows_of(x);  // by each token
    const float* from = s.row(x, source / chosen) + part.first;
    if (weights.storage >= 0)
      s.kernels->scale(from, s.floats(weights)[source], part.last - part.first, y + part.first);
    else
      std::copy_n(from, part.last - part.first, y + part.first);
  });
}

RunnerPtr make_runner(const graph::Combine& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  const ValueRef places = c.value(op.places);
  ValueRef weights;
  if (op.weights != graph::kNoValue) weights = c.value(op.weights);
  return row_parts(c.value(op.out), kPartCols, [=](const Step& s, const RowPart& part, float* y) {
    thread_local std::vector<const float*> rows;
    rows.clear();
    const int32_t* place = s.index_row(places, part.row);
    for (int64_t i = 0; i < places.cols; ++i) rows.push_back(s.row(x, place[i]) + part.first);
    s.kernels->weighted_sum(rows.data(), weights.storage >= 0 ? s.row(weights, part.row) : nullptr,
                            static_cast<int>(places.cols), part.last - part.first, y + part.first);
  });
}

}  // namespace oxibonsai::cpu
