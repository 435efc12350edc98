#include "graph/experts.h"

namespace oxibonsai::graph {

std::vector<Value> infer(const Route& op, const Checker& c) {
  const Value& scores = c.floats(op.scores);
  c.require(scores.rows == tokens(), "a router scores the rows of the tokens");
  c.require(op.k >= 1 && op.k <= scores.cols, "more experts are chosen than there are");
  if (op.selection_bias != nullptr) c.vector(op.selection_bias, scores.cols);
  return {{tokens(), op.k, ValueType::kI32}, {tokens(), op.k}};
}

std::vector<Value> infer(const ExpertLinear& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  const Value& experts = c.value(op.experts);
  c.require(experts.type == ValueType::kI32 && experts.rows == tokens(),
            "the experts are not those of a router");
  const RowSpace to = routed(static_cast<int>(experts.cols));
  c.require(x.rows == tokens() || x.rows == to, "the input has no row for each expert chosen");
  c.require(op.weight != nullptr && op.weight->cols() == x.cols,
            "the weight has another width than its input");
  c.require(!op.weight->integer() || x.cols % 32 == 0, "int8 needs a width of whole groups of 32");
  return {{to, op.weight->rows()}};
}

std::vector<Value> infer(const Combine& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  const Value& weights = c.floats(op.weights);
  c.require(weights.rows == tokens() && x.rows == routed(static_cast<int>(weights.cols)),
            "the weights are not those of the rows");
  return {{tokens(), x.cols}};
}

}  // namespace oxibonsai::graph
