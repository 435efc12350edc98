#include "graph/modulation.h"

namespace oxibonsai::graph {
namespace {

void check_row(ValueId row, int64_t cols, const Checker& c) {
  c.require(c.floats(row).rows == sequences(), "a modulation is no row of the sequence");
  c.require(c.value(row).cols == cols, "a modulation has another width than what it changes");
}

}  // namespace

std::vector<Value> infer(const Sinusoids& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(x.cols == 1, "sinusoids are of one number in a row");
  c.require(op.frequencies != nullptr && !op.frequencies->empty(), "sinusoids need frequencies");
  return {{x.rows, 2 * static_cast<int64_t>(op.frequencies->size())}};
}

std::vector<Value> infer(const Modulate& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  check_row(op.scale, x.cols, c);
  check_row(op.shift, x.cols, c);
  return {{x.rows, x.cols}};
}

std::vector<Value> infer(const AddGated& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.same_rows(op.x, op.y);
  c.require(c.value(op.y).cols == x.cols, "the inputs have different widths");
  check_row(op.gate, x.cols, c);
  return {{x.rows, x.cols}};
}

}  // namespace oxibonsai::graph
