#pragma once

// Ops in which an element depends on the same element of the inputs.

#include "graph/activation.h"
#include "graph/check.h"

namespace oxibonsai::graph {

// act(gate) * up.
struct Gated {
  static constexpr const char* kName = "gated";
  ValueId gate = kNoValue;
  ValueId up = kNoValue;
  Activation activation = Activation::kSilu;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&gate, &up}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// x * sigmoid(gate), with one gate for each row.
struct GateRows {
  static constexpr const char* kName = "gate_rows";
  ValueId x = kNoValue;
  ValueId gate = kNoValue;  // one column
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x, &gate}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// Sums of neighbouring parts of a row, by weights of that row: part o of the result is the sum of
// weights[o * parts + i] * part i of x, i = 0 .. parts - 1.
struct MixParts {
  static constexpr const char* kName = "mix_parts";
  ValueId x = kNoValue;        // [n, parts * width]
  ValueId weights = kNoValue;  // [n, results * parts]
  int parts = 0;
  ValueId out = kNoValue;  // [n, results * width]
  std::vector<ValueId*> inputs() { return {&x, &weights}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// act(x).
struct Activate {
  static constexpr const char* kName = "activate";
  ValueId x = kNoValue;
  Activation activation = Activation::kSilu;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

struct Add {
  static constexpr const char* kName = "add";
  ValueId a = kNoValue;
  ValueId b = kNoValue;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&a, &b}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// x + vector in each row.
struct AddVector {
  static constexpr const char* kName = "add_vector";
  ValueId x = kNoValue;
  Vector vector;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// x * factor.
struct Scale {
  static constexpr const char* kName = "scale";
  ValueId x = kNoValue;
  float factor = 1.0f;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// alpha_p x^2 + beta x where x > 0, else alpha_n (e^min(x, eps) - 1 - x) + beta x.
struct Xielu {
  static constexpr const char* kName = "xielu";
  ValueId x = kNoValue;
  float alpha_p = 0.0f, alpha_n = 0.0f, beta = 0.0f, eps = 0.0f;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// x within -limit and limit.
struct Clamp {
  static constexpr const char* kName = "clamp";
  ValueId x = kNoValue;
  float limit = 0.0f;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// cap * tanh(x / cap).
struct Softcap {
  static constexpr const char* kName = "softcap";
  ValueId x = kNoValue;
  float cap = 0.0f;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

std::vector<Value> infer(const Gated& op, const Checker& c);
std::vector<Value> infer(const GateRows& op, const Checker& c);
std::vector<Value> infer(const MixParts& op, const Checker& c);
std::vector<Value> infer(const Activate& op, const Checker& c);
std::vector<Value> infer(const Add& op, const Checker& c);
std::vector<Value> infer(const AddVector& op, const Checker& c);
std::vector<Value> infer(const Scale& op, const Checker& c);
std::vector<Value> infer(const Xielu& op, const Checker& c);
std::vector<Value> infer(const Clamp& op, const Checker& c);
std::vector<Value> infer(const Softcap& op, const Checker& c);

}  // namespace oxibonsai::graph
