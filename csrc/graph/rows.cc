#include "graph/rows.h"

namespace oxibonsai::graph {

std::vector<Value> infer(const Embed& op, const Checker& c) {
  c.require(op.weight != nullptr && op.weight->experts() == 1, "the table is no matrix");
  return {{tokens(), op.weight->cols()}};
}

std::vector<Value> infer(const EmbedPositions& op, const Checker& c) {
  c.require(op.weight != nullptr && op.weight->experts() == 1, "the table is no matrix");
  return {{tokens(), op.weight->cols()}};
}

std::vector<Value> infer(const Input& op, const Checker& c) {
  c.require(!op.name.empty() && op.cols > 0, "an input needs a name and columns");
  c.require(op.rows.kind != RowSpace::Kind::kInput || op.rows.name == op.name,
            "an input has no rows of another one");
  return {{op.rows, op.cols}};
}

std::vector<Value> infer(const SelectOutputs& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(x.rows == tokens(), "outputs are chosen among the rows of the tokens");
  return {{outputs(), x.cols}};
}

}  // namespace oxibonsai::graph
