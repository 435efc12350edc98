#include "graph/norm.h"

namespace oxibonsai::graph {

std::vector<Value> infer(const RmsNorm& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(op.groups > 0 && x.cols % op.groups == 0, "the width has no such groups");
  c.require(op.weight != nullptr, "a vector is missing");
  const auto weights = static_cast<int64_t>(op.weight->size());
  c.vector(op.weight, weights == x.cols ? x.cols : x.cols / op.groups);
  return {{x.rows, x.cols}};
}

std::vector<Value> infer(const MatchRms& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.same_rows(op.x, op.like);
  c.require(c.floats(op.like).cols == x.cols, "the widths differ");
  c.require(op.floor > 0.0f, "the floor is not above zero");
  return {{x.rows, x.cols}};
}

std::vector<Value> infer(const GaussianTopK& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  return {{x.rows, x.cols}};
}

std::vector<Value> infer(const LayerNorm& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(op.groups > 0 && x.cols % op.groups == 0, "the width has no such groups");
  c.require(op.weight != nullptr, "a vector is missing");
  const auto width = static_cast<int64_t>(op.weight->size());
  c.vector(op.weight, width == x.cols ? x.cols : x.cols / op.groups);
  if (op.bias != nullptr) c.vector(op.bias, width);
  return {{x.rows, x.cols}};
}

}  // namespace oxibonsai::graph
