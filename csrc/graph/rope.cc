#include "graph/rope.h"

#include <algorithm>

#include "base/exp_log.h"
#include "base/trig.h"

namespace oxibonsai::graph {
namespace {

constexpr int32_t kMostAxes = 16;

// What cos and sin of a position are multiplied by.
float magnitude(const RopeTable& op, int32_t position) {
  if (op.temperature_step == 0) return op.scale;
  const auto steps =
      static_cast<double>((int64_t{position} + op.temperature_offset) / op.temperature_step);
  const double growth = 1.0 + static_cast<double>(op.temperature) * exact_log(1.0 + steps);
  return op.scale * static_cast<float>(growth);
}

}  // namespace

int32_t RopeTable::axis_count() const {
  return axes.empty() ? 0 : *std::max_element(axes.begin(), axes.end()) + 1;
}

void RopeTable::write_row(const Batch& batch, int64_t row, int32_t position, float* out) const {
  const std::vector<float>& frequency = *frequencies;
  const size_t pairs = frequency.size();
  const float size = magnitude(*this, position);
  const bool own_axes = !axes.empty() && !batch.positions.empty();
  const int32_t* on_axes = own_axes ? batch.positions.data() + row * batch.axes : nullptr;
  for (size_t i = 0; i < pairs; ++i) {
    const int32_t p = own_axes ? on_axes[axes[i]] : position;
    const SinCos v = sin_cos(static_cast<float>(p) * frequency[i]);
    out[i] = v.cos * size;
    out[pairs + i] = v.sin * size;
  }
}

std::vector<Value> infer(const RopeTable& op, const Checker& c) {
  c.require(op.frequencies != nullptr && !op.frequencies->empty(), "a table needs frequencies");
  c.require(op.temperature_step > 0 || op.temperature == 0.0f, "a temperature needs a step");
  c.require(op.temperature_offset >= 0 && op.temperature_offset <= op.temperature_step,
            "the offset of a temperature is above its step");
  c.require(op.axes.empty() || op.axes.size() == op.frequencies->size(),
            "a table with axes needs one for each frequency");
  for (const int32_t axis : op.axes)
    c.require(axis >= 0 && axis < kMostAxes, "an axis of positions is none of 0 to 15");
  c.require(op.axes.empty() || op.temperature_step == 0,
            "a temperature is of the position in a sequence, not of axes");
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
