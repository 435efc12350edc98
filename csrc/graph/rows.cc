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

std::vector<Value> infer(const InsertRows& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  const Value& rows = c.floats(op.rows);
  c.require(x.rows == tokens(), "rows are inserted among those of the tokens");
  c.require(rows.rows.kind == RowSpace::Kind::kInput, "inserted rows are those of an input");
  c.require(op.first >= 0 && x.cols <= rows.cols - op.first, "the input has too few columns");
  return {{x.rows, x.cols}};
}

std::vector<Value> infer(const SelectOutputs& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(x.rows == tokens(), "outputs are chosen among the rows of the tokens");
  return {{outputs(), x.cols}};
}

std::vector<Value> infer(const SelectColumns& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(op.first >= 0 && op.count > 0 && op.count <= op.period - op.first,
            "the columns do not lie within a period");
  c.require(x.cols % op.period == 0, "the width has no whole periods");
  return {{x.rows, x.cols / op.period * op.count}};
}

std::vector<Value> infer(const JoinHeads& op, const Checker& c) {
  c.same_rows(op.a, op.b);
  const int64_t a = c.floats(op.a).cols;
  const int64_t b = c.floats(op.b).cols;
  c.require(op.heads > 0 && a % op.heads == 0 && b % op.heads == 0, "the width has no such heads");
  return {{c.value(op.a).rows, a + b}};
}

std::vector<Value> infer(const JoinRows& op, const Checker& c) {
  const Value& a = c.floats(op.a);
  const Value& b = c.floats(op.b);
  c.require(a.rows.kind == RowSpace::Kind::kInput && b.rows.kind == RowSpace::Kind::kInput &&
                a.rows != b.rows,
            "rows of two inputs are joined");
  c.require(a.cols == b.cols, "the inputs have different widths");
  return {{tokens(), a.cols}};
}

std::vector<Value> infer(const SplitRows& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(x.rows == tokens(), "the rows of the tokens are taken apart");
  c.require(op.first_rows.kind == RowSpace::Kind::kInput &&
                op.last_rows.kind == RowSpace::Kind::kInput && op.first_rows != op.last_rows,
            "rows are taken apart into those of two inputs");
  return {{op.first_rows, x.cols}, {op.last_rows, x.cols}};
}

std::vector<Value> infer(const TransposeHeads& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(op.outer > 0 && op.inner > 0 && x.cols % (int64_t{op.outer} * op.inner) == 0,
            "the width has no such heads");
  return {{x.rows, x.cols}};
}

}  // namespace oxibonsai::graph
