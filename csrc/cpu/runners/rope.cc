#include <algorithm>
#include <cstring>

#include "cpu/runner.h"

namespace oxibonsai::cpu {
namespace {

// Heads in one item.
constexpr int kHeads = 8;

// An item is a row of the table.
class RopeTableRunner : public Runner {
 public:
  RopeTableRunner(const graph::RopeTable& op, const ValueRef& out) : op_(op), out_(out) {}
  int64_t items(const Step& s, int) const override { return s.rows_of(out_); }
  void run(const Step& s, int, int64_t r) const override {
    op_.write_row(*s.batch, r, s.positions[static_cast<size_t>(r)], s.row(out_, r));
  }

 private:
  const graph::RopeTable op_;
  const ValueRef out_;
};

// The kernel rotates in place: the output is a copy first, unless it has the input's storage.
class RopeRunner : public Runner {
 public:
  RopeRunner(const graph::Rope& op, const RunnerContext& c)
      : op_(op),
        x_(c.value(op.x)),
        table_(c.value(op.table)),
        out_(c.value(op.out)),
        heads_(static_cast<int>(x_.cols / op.head_dim)) {}
  int64_t items(const Step& s, int) const override { return s.rows_of(x_) * items_in_row(); }
  void run(const Step& s, int, int64_t item) const override {
    const int64_t r = item / items_in_row();
    const auto first = static_cast<int>(item % items_in_row()) * kHeads;
    const int heads = std::min(kHeads, heads_ - first);
    const auto pairs = static_cast<int>(table_.cols / 2);
    const int64_t at = static_cast<int64_t>(first) * op_.head_dim;
    const float* table = s.row(table_, r);
    float* out = s.row(out_, r) + at;
    if (out_.storage != x_.storage)
      std::memcpy(out, s.row(x_, r) + at,
                  static_cast<size_t>(heads) * static_cast<size_t>(op_.head_dim) * sizeof(float));
    const RopeArgs a{out, table, table + pairs, heads, op_.head_dim, pairs};
    (op_.interleaved ? s.kernels->rope_pairs : s.kernels->rope_halves)(a);
  }

 private:
  int64_t items_in_row() const { return (heads_ + kHeads - 1) / kHeads; }

  const graph::Rope op_;
  const ValueRef x_, table_, out_;
  const int heads_;
};

}  // namespace

RunnerPtr make_runner(const graph::RopeTable& op, const RunnerContext& c) {
  return std::make_unique<RopeTableRunner>(op, c.value(op.out));
}

RunnerPtr make_runner(const graph::Rope& op, const RunnerContext& c) {
  return std::make_unique<RopeRunner>(op, c);
}

}  // namespace oxibonsai::cpu
