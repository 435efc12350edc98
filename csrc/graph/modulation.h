#pragma once

// What a diffusion transformer does with its time step: sines of it, and rows made of them that
// shift, scale and gate all tokens alike.

#include "graph/check.h"

namespace oxibonsai::graph {

// cos, then sin, of x * frequency for each frequency: [rows, 2 * frequencies].
struct Sinusoids {
  static constexpr const char* kName = "sinusoids";
  ValueId x = kNoValue;  // one column
  Vector frequencies;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// x * (1 + scale) + shift, in every row of x; scale and shift are one row of the sequence.
struct Modulate {
  static constexpr const char* kName = "modulate";
  ValueId x = kNoValue;
  ValueId scale = kNoValue;  // [sequences, cols of x]
  ValueId shift = kNoValue;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x, &scale, &shift}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// x + gate * y, in every row of x and y; the gate is one row of the sequence.
struct AddGated {
  static constexpr const char* kName = "add_gated";
  ValueId x = kNoValue;
  ValueId y = kNoValue;
  ValueId gate = kNoValue;  // [sequences, cols of x]
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x, &y, &gate}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

std::vector<Value> infer(const Sinusoids& op, const Checker& c);
std::vector<Value> infer(const Modulate& op, const Checker& c);
std::vector<Value> infer(const AddGated& op, const Checker& c);

}  // namespace oxibonsai::graph
