#include "graph/rope.h"

#include "base/exp_log.h"

namespace oxibonsai::graph {

float RopeTable::magnitude(int32_t position) const {
  if (temperature_step == 0) return scale;
  const auto steps = static_cast<double>((position + temperature_offset) / temperature_step);
  const double growth = 1.0 + static_cast<double>(temperature) * exact_log(1.0 + steps);
  return scale * static_cast<float>(growth);
}

std::vector<Value> infer(const RopeTable& op, const Checker& c) {
  c.require(op.frequencies != nullptr && !op.frequencies->empty(), "a table needs frequencies");
  c.require(op.temperature_step > 0 || op.temperature == 0.0f, "a temperature needs a step");
  c.require(op.temperature_offset >= 0 && op.temperature_offset <= op.temperature_step,
            "the offset of a temperature is above its step");
  return {{tokens(), 2 * static_cast<int64_t>(op.frequencies->size())}};
}

std::vector<Value> infer(const Rope& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.same_rows(op.x, op.table);
  const int64_t angles = c.value(op.table).cols;
  c.require(op.head_dim > 0 && x.cols % op.head_dim == 0, "the width has no such heads");
  c.require(angles % 2 == 0 && angles <= op.head_dim, "more pairs than a head has");
  return {{x.rows, x.cols}};
}

}  // namespace oxibonsai::graph
