#include "graph/recurrence.h"

namespace oxibonsai::graph {
namespace {

// The slot is there, and has so many floats.
void check_slot(const Checker& c, int slot, int64_t floats) {
  const std::vector<int64_t>& slots = c.state().slot;
  c.require(slot >= 0 && static_cast<size_t>(slot) < slots.size(),
            "the graph declares no such slot");
  c.require(slots[static_cast<size_t>(slot)] == floats,
            "the slot has another size than the state of the op");
}

}  // namespace

std::vector<Value> infer(const Conv1d& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(x.rows == tokens(), "a convolution runs over the rows of the tokens");
  c.require(op.taps >= 2, "a convolution needs at least two taps");
  c.vector(op.weight, x.cols * op.taps);
  if (op.bias != nullptr) c.vector(op.bias, x.cols);
  check_slot(c, op.slot, x.cols * (op.taps - 1));
  return {{x.rows, x.cols}};
}

std::vector<Value> infer(const GatedDelta& op, const Checker& c) {
  const Value& qkv = c.floats(op.qkv);
  c.require(qkv.rows == tokens(), "a scan runs over the rows of the tokens");
  c.same_rows(op.qkv, op.alpha);
  c.same_rows(op.qkv, op.beta);
  const int64_t heads = c.value(op.alpha).cols;
  c.require(c.value(op.beta).cols == heads, "alpha and beta have different widths");
  c.require(op.key_heads > 0 && op.key_dim > 0 && op.value_dim > 0, "heads and dims are positive");
  c.require(heads % op.key_heads == 0, "the value heads are no multiple of the key heads");
  const int64_t keys = int64_t{op.key_heads} * op.key_dim;
  c.require(qkv.cols == 2 * keys + heads * op.value_dim,
            "the width is not that of the queries, keys and values");
  c.vector(op.dt_bias, heads);
  c.vector(op.decay, heads);
  check_slot(c, op.slot, scan_floats(heads, op.key_dim, op.value_dim));
  return {{qkv.rows, heads * op.value_dim}};
}

std::vector<Value> infer(const Mamba2Scan& op, const Checker& c) {
  const Value& xbc = c.floats(op.xbc);
  c.require(xbc.rows == tokens(), "a scan runs over the rows of the tokens");
  c.same_rows(op.xbc, op.time_step);
  const int64_t heads = c.value(op.time_step).cols;
  c.require(op.groups > 0 && op.state_dim > 0, "groups and the dims of a state are positive");
  c.require(heads % op.groups == 0, "the heads are no multiple of the groups");
  const int64_t inner = xbc.cols - int64_t{2} * op.groups * op.state_dim;
  c.require(inner > 0 && inner % heads == 0, "the width leaves no equal heads");
  c.vector(op.dt_bias, heads);
  c.vector(op.decay, heads);
  c.vector(op.skip, heads);
  check_slot(c, op.slot, scan_floats(heads, op.state_dim, inner / heads));
  return {{xbc.rows, inner}};
}

std::vector<Value> infer(const MambaScan& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(x.rows == tokens(), "a scan runs over the rows of the tokens");
  for (const ValueId other : {op.time_step, op.b, op.c}) c.same_rows(op.x, other);
  c.require(c.value(op.time_step).cols == x.cols, "time steps and input have different widths");
  const int64_t state_dim = c.value(op.b).cols;
  c.require(c.value(op.c).cols == state_dim, "b and c have different widths");
  c.vector(op.dt_bias, x.cols);
  c.vector(op.skip, x.cols);
  c.vector(op.decay, x.cols * state_dim);
  check_slot(c, op.slot, scan_floats(1, state_dim, x.cols));
  return {{x.rows, x.cols}};
}

std::vector<Value> infer(const Wkv7Scan& op, const Checker& c) {
  const Value& r = c.floats(op.r);
  c.require(r.rows == tokens(), "a scan runs over the rows of the tokens");
  for (const ValueId other : {op.w, op.k, op.v, op.kk, op.a}) {
    c.same_rows(op.r, other);
    c.require(c.value(other).cols == r.cols, "the inputs of the scan have different widths");
  }
  c.require(op.head_dim > 0 && r.cols % op.head_dim == 0, "the width is not that of whole heads");
  check_slot(c, op.slot, scan_floats(r.cols / op.head_dim, op.head_dim, op.head_dim));
  return {{r.rows, r.cols}};
}

}  // namespace oxibonsai::graph
