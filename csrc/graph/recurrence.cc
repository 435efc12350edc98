#include "graph/recurrence.h"

namespace oxibonsai::graph {

std::vector<Value> infer(const Conv1d& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(x.rows == tokens(), "a convolution runs over the rows of the tokens");
  c.require(op.taps >= 2, "a convolution needs at least two taps");
  c.vector(op.weight, x.cols * op.taps);
  if (op.bias != nullptr) c.vector(op.bias, x.cols);
  const std::vector<int64_t>& slots = c.state().slot;
  c.require(op.slot >= 0 && static_cast<size_t>(op.slot) < slots.size(),
            "the graph declares no such slot");
  c.require(slots[static_cast<size_t>(op.slot)] == x.cols * (op.taps - 1),
            "the slot has another size than the rows that are kept");
  return {{x.rows, x.cols}};
}

}  // namespace oxibonsai::graph
