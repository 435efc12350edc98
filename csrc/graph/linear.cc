#include "graph/linear.h"

namespace oxibonsai::graph {

std::vector<Value> infer(const Linear& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(!op.weights.empty(), "a linear layer needs a weight");
  c.require(op.biases.empty() || op.biases.size() == op.weights.size(),
            "one bias for each weight, or none at all");
  std::vector<Value> made;
  for (size_t i = 0; i < op.weights.size(); ++i) {
    c.require(op.weights[i] != nullptr && op.weights[i]->experts() == 1, "a weight is no matrix");
    const Weight& w = *op.weights[i];
    c.require(w.cols() == x.cols, "a weight has another width than its input");
    c.require(!w.integer() || w.cols() % 32 == 0, "int8 needs a width of whole groups of 32");
    if (!op.biases.empty() && op.biases[i] != nullptr) c.vector(op.biases[i], w.rows());
    made.push_back({x.rows, w.rows()});
  }
  if (op.add != kNoValue) {
    c.require(op.weights.size() == 1, "a sum is added to a single weight only");
    c.same_rows(op.x, op.add);
    c.require(c.value(op.add).cols == op.weights[0]->rows(), "the sum has another width");
  }
  return made;
}

std::vector<Value> infer(const HeadLinear& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(op.weight != nullptr && x.cols == op.weight->experts() * op.weight->cols(),
            "the weight has no matrix for each head of its input");
  c.require(!op.weight->integer() || op.weight->cols() % 32 == 0,
            "int8 needs a width of whole groups of 32");
  return {{x.rows, op.weight->experts() * op.weight->rows()}};
}

std::vector<Value> infer(const RoundInt8& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(x.cols % 32 == 0, "int8 needs a width of whole groups of 32");
  return {{x.rows, x.cols, ValueType::kInt8}};
}

std::vector<Value> infer(const Hadamard& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(op.block > 0 && x.cols % op.block == 0, "the width has no such blocks");
  c.require((op.block & (op.block - 1)) == 0, "a block is no power of two");
  if (op.before != nullptr) c.vector(op.before, x.cols);
  if (op.after != nullptr) c.vector(op.after, x.cols);
  return {{x.rows, x.cols}};
}

std::vector<Value> infer(const Observe& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(op.sums != nullptr && op.sums->cols() == x.cols, "sums of another width");
  return {};
}

}  // namespace oxibonsai::graph
