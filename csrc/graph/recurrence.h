#pragma once

// Ops over a slot of recurrent state. A sequence's tokens go through one after the other; the token
// at position 0 begins with a state of zeros, whatever the slot holds.

#include "graph/check.h"

namespace oxibonsai::graph {

// Causal depthwise convolution over the tokens of a sequence: out[t, c] is the sum over j of
// weight[c, j] * x[t - taps + 1 + j, c], from the earliest on, plus bias[c]. The slot keeps the
// last taps - 1 rows of x.
struct Conv1d {
  static constexpr const char* kName = "conv1d";
  ValueId x = kNoValue;  // [tokens, channels]
  Vector weight;         // [channels, taps]
  Vector bias;           // [channels] or null
  int taps = 0;
  int slot = 0;  // of StateSpec::slot
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

std::vector<Value> infer(const Conv1d& op, const Checker& c);

}  // namespace oxibonsai::graph
