#include "graph/elementwise.h"

namespace oxibonsai::graph {
namespace {

std::vector<Value> like(ValueId x, const Checker& c) {
  const Value& v = c.floats(x);
  return {{v.rows, v.cols}};
}

std::vector<Value> pair(ValueId a, ValueId b, const Checker& c) {
  c.same_rows(a, b);
  c.require(c.value(a).cols == c.value(b).cols, "the inputs have different widths");
  return like(a, c);
}

}  // namespace

std::vector<Value> infer(const Gated& op, const Checker& c) { return pair(op.gate, op.up, c); }

std::vector<Value> infer(const GateRows& op, const Checker& c) {
  c.same_rows(op.x, op.gate);
  c.require(c.floats(op.gate).cols == 1, "a row has more than one gate");
  return like(op.x, c);
}

std::vector<Value> infer(const MixParts& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.same_rows(op.x, op.weights);
  const int64_t weights = c.floats(op.weights).cols;
  c.require(op.parts > 0 && x.cols % op.parts == 0 && weights % op.parts == 0,
            "the widths have no such parts");
  return {{x.rows, x.cols / op.parts * (weights / op.parts)}};
}

std::vector<Value> infer(const Activate& op, const Checker& c) {
  c.require(op.activation != Activation::kSwigluOai, "swiglu_oai needs a gate");
  return like(op.x, c);
}

std::vector<Value> infer(const Add& op, const Checker& c) { return pair(op.a, op.b, c); }

std::vector<Value> infer(const AddVector& op, const Checker& c) {
  c.vector(op.vector, c.floats(op.x).cols);
  return like(op.x, c);
}

std::vector<Value> infer(const Scale& op, const Checker& c) { return like(op.x, c); }

std::vector<Value> infer(const Xielu& op, const Checker& c) { return like(op.x, c); }

std::vector<Value> infer(const Clamp& op, const Checker& c) {
  c.require(op.limit > 0.0f, "the limit of a clamp is positive");
  return like(op.x, c);
}

std::vector<Value> infer(const Softcap& op, const Checker& c) {
  c.require(op.cap > 0.0f, "a soft cap is positive");
  return like(op.x, c);
}

}  // namespace oxibonsai::graph
