#pragma once

// Ops that begin a pass, or choose rows or columns.

#include "graph/check.h"
#include "graph/weight.h"

namespace oxibonsai::graph {

// Rows of a table for the tokens of the batch: [tokens, cols]. Zeros for a token that stands for a
// row of an input.
struct Embed {
  static constexpr const char* kName = "embed";
  WeightPtr weight;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// Rows of a table for the positions of the batch: [tokens, cols].
struct EmbedPositions {
  static constexpr const char* kName = "embed_positions";
  WeightPtr weight;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// A float matrix that comes with the batch, [rows, cols]: embeddings, pixels, a time step.
struct Input {
  static constexpr const char* kName = "input";
  std::string name;
  RowSpace rows;
  int64_t cols = 0;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// x with rows of an input in place of tokens that stand for them (Batch::tokens), or with those
// added. Of the input's columns, x.cols are read, from `first` on.
struct InsertRows {
  static constexpr const char* kName = "insert_rows";
  ValueId x = kNoValue;     // [tokens, cols]
  ValueId rows = kNoValue;  // of an input with rows of its own
  int64_t first = 0;
  bool added = false;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x, &rows}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// The rows of x that want an output: from tokens to outputs.
struct SelectOutputs {
  static constexpr const char* kName = "select_outputs";
  ValueId x = kNoValue;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// Columns first .. first + count - 1 of each `period` columns of x, which has whole periods.
struct SelectColumns {
  static constexpr const char* kName = "select_columns";
  ValueId x = kNoValue;
  int64_t first = 0, count = 0, period = 0;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// Heads in another order: a row of x, seen as [outer, inner, columns of a head], becomes [inner,
// outer, columns of a head].
struct TransposeHeads {
  static constexpr const char* kName = "transpose_heads";
  ValueId x = kNoValue;
  int outer = 0, inner = 0;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// Heads of a and of b side by side: [rows, heads * (columns of a head of a + those of b)].
struct JoinHeads {
  static constexpr const char* kName = "join_heads";
  ValueId a = kNoValue;
  ValueId b = kNoValue;
  int heads = 0;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&a, &b}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// The rows of a, then those of b: the tokens of the batch's one sequence.
struct JoinRows {
  static constexpr const char* kName = "join_rows";
  ValueId a = kNoValue;
  ValueId b = kNoValue;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&a, &b}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// What JoinRows joins, taken apart: the first rows of x and the last ones.
struct SplitRows {
  static constexpr const char* kName = "split_rows";
  ValueId x = kNoValue;
  RowSpace first_rows, last_rows;
  ValueId first = kNoValue;
  ValueId last = kNoValue;
  std::vector<ValueId*> inputs() { return {&x}; }
  std::vector<ValueId*> outputs() { return {&first, &last}; }
};

// Each checks an op and returns the values that it makes.
std::vector<Value> infer(const JoinHeads& op, const Checker& c);
std::vector<Value> infer(const JoinRows& op, const Checker& c);
std::vector<Value> infer(const SplitRows& op, const Checker& c);
std::vector<Value> infer(const Embed& op, const Checker& c);
std::vector<Value> infer(const EmbedPositions& op, const Checker& c);
std::vector<Value> infer(const Input& op, const Checker& c);
std::vector<Value> infer(const InsertRows& op, const Checker& c);
std::vector<Value> infer(const SelectOutputs& op, const Checker& c);
std::vector<Value> infer(const SelectColumns& op, const Checker& c);
std::vector<Value> infer(const TransposeHeads& op, const Checker& c);

}  // namespace oxibonsai::graph
