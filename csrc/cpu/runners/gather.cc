// Columns of several processes put together: rows are copied to one message, exchanged, and copied
// to their values. The exchange is a phase of its own, so that no two are under way at once and all
// processes come to them in the same order.

#include <algorithm>

#include "cpu/runner.h"
#include "graph/gather.h"

namespace oxibonsai::cpu {
namespace {

class GatherRunner : public Runner {
 public:
  GatherRunner(const graph::Gather& op, const RunnerContext& c)
      : op_(op), columns_(op.sent_columns()), workspace_(c.workspace) {
    for (const graph::ValueId id : op.x) x_.push_back(c.value(id));
    for (const graph::ValueId id : op.out) out_.push_back(c.value(id));
  }

  int phases() const override { return 3; }

  int64_t items(const Step& s, int phase) const override {
    const int64_t rows = s.rows_of(out_.front());
    return phase == 1 ? std::min<int64_t>(rows, 1) : rows;
  }

  // The own message, then one of each rank.
  int64_t workspace_bytes(const Step& s) const override {
    return message(s) * (1 + op_.exchange->ranks()) * static_cast<int64_t>(sizeof(float));
  }

  void run(const Step& s, int phase, int64_t item) const override {
    auto* own = s.workspace_floats(workspace_);
    float* all = own + message(s);
    if (phase == 0) return send(s, item, own);
    if (phase == 1) return op_.exchange->all_gather(own, all, message(s));
    receive(s, item, all);
  }

 private:
  int64_t message(const Step& s) const { return s.rows_of(out_.front()) * columns_; }

  void send(const Step& s, int64_t row, float* own) const {
    float* to = own + row * columns_;
    float* end = to + columns_;
    for (const ValueRef& x : x_) to = std::copy_n(s.row(x, row), x.cols, to);
    std::fill(to, end, 0.0f);  // where another rank has more columns
  }

  void receive(const Step& s, int64_t row, const float* all) const {
    for (int rank = 0; rank < op_.exchange->ranks(); ++rank) {
      const float* from = all + rank * message(s) + row * columns_;
      for (size_t i = 0; i < out_.size(); ++i) {
        const auto& columns = op_.columns[i];
        int64_t first = 0;
        for (int r = 0; r < rank; ++r) first += columns[static_cast<size_t>(r)];
        const int64_t count = columns[static_cast<size_t>(rank)];
        std::copy_n(from, count, s.row(out_[i], row) + first);
        from += count;
      }
    }
  }

  const graph::Gather op_;
  const int64_t columns_;  // of a row of a message
  const int workspace_;
  std::vector<ValueRef> x_, out_;
};

}  // namespace

RunnerPtr make_runner(const graph::Gather& op, const RunnerContext& c) {
  return std::make_unique<GatherRunner>(op, c);
}

}  // namespace oxibonsai::cpu
