// Ops over a slot of recurrent state: an item is a run of channels of one sequence, whose tokens it
// takes one after the other.

#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/runner.h"

namespace oxibonsai::cpu {
namespace {

constexpr int64_t kItemChannels = 256;

class Conv1dRunner : public Runner {
 public:
  Conv1dRunner(const graph::Conv1d& op, const RunnerContext& c)
      : op_(op),
        x_(c.value(op.x)),
        out_(c.value(op.out)),
        count_((x_.cols + kItemChannels - 1) / kItemChannels) {}

  int64_t items(const Step& s, int) const override {
    return static_cast<int64_t>(s.batch->spans.size()) * count_;
  }

  void run(const Step& s, int, int64_t item) const override {
    const auto index = static_cast<size_t>(item / count_);
    const graph::Span& span = s.batch->spans[index];
    const int64_t first = item % count_ * kItemChannels;
    const int64_t n = std::min(kItemChannels, x_.cols - first);
    const int kept = op_.taps - 1;
    // Rows of earlier tokens, then those of the step: a window of `taps` rows slides over them.
    float* state = s.state->slots->state(span.slot, op_.slot) + first;
    thread_local std::vector<float> rows;
    rows.resize(static_cast<size_t>((kept + span.count) * n));
    for (int i = 0; i < kept; ++i) {
      float* row = &rows[static_cast<size_t>(i * n)];
      if (span.first == 0) {
        std::fill_n(row, n, 0.0f);
      } else {
        std::copy_n(state + i * x_.cols, n, row);
      }
    }
    for (int t = 0; t < span.count; ++t)
      std::copy_n(s.row(x_, s.first_row[index] + t) + first, n,
                  &rows[static_cast<size_t>((kept + t) * n)]);
    for (int t = 0; t < span.count; ++t)
      convolve(&rows[static_cast<size_t>(t * n)], n, first,
               s.row(out_, s.first_row[index] + t) + first);
    for (int i = 0; i < kept; ++i)
      std::copy_n(&rows[static_cast<size_t>((span.count + i) * n)], n, state + i * x_.cols);
  }

 private:
  // `taps` rows of n channels from `first` on to one row.
  void convolve(const float* rows, int64_t n, int64_t first, float* out) const {
    const float* weight = op_.weight->data() + first * op_.taps;
    for (int64_t c = 0; c < n; ++c) {
      float sum = rows[c] * weight[c * op_.taps];
      for (int j = 1; j < op_.taps; ++j) sum += rows[j * n + c] * weight[c * op_.taps + j];
      out[c] = op_.bias != nullptr ? sum + (*op_.bias)[static_cast<size_t>(first + c)] : sum;
    }
  }

  const graph::Conv1d op_;
  const ValueRef x_, out_;
  const int64_t count_;
};

}  // namespace

RunnerPtr make_runner(const graph::Conv1d& op, const RunnerContext& c) {
  return std::make_unique<Conv1dRunner>(op, c);
}

}  // namespace oxibonsai::cpu
