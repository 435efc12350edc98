#pragma once

// Ops that begin a pass, or choose rows or columns.

#include "graph/check.h"
#include "graph/weight.h"

namespace oxibonsai::graph {

// Rows of a table for the tokens of the batch: [tokens, cols]. Zeros for a token that stands for a
// row of an input.
struct Embed {
  static constexpr const char* kName = "embed";
  static constexpr const char* kDoc =
      "Return rows of the table for the batch's tokens: [tokens, cols].";
  WeightPtr weight;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.takes("weight", weight).makes("out", out);
  }
};

struct EmbedPositions {
  static constexpr const char* kName = "embed_positions";
  static constexpr const char* kDoc =
      "Return rows of the table for the batch's positions: [tokens, cols].";
  WeightPtr weight;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.takes("weight", weight).makes("out", out);
  }
};

// A float matrix that comes with the batch, [rows, cols]: embeddings, pixels, a time step.
struct Input {
  static constexpr const char* kName = "input";
  std::string name;
  RowSpace rows;
  int64_t cols = 0;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.takes("name", name).takes("rows", rows).takes("cols", cols).makes("out", out);
  }
};

// x with rows of an input in place of tokens that stand for them (Batch::tokens), or with those
// added. Of the input's columns, x.cols are read, from `first` on.
struct InsertRows {
  static constexpr const char* kName = "insert_rows";
  static constexpr const char* kDoc =
      R"(Return x with rows of an input in place of the tokens that stand for them: [tokens, cols].

A token -1 - i stands for row i.

Args:
    x: [tokens, cols].
    rows: An input with rows of its own.
    first: The first of its columns that are read.
    added: Add the rows to x instead.)";
  ValueId x = kNoValue;     // [tokens, cols]
  ValueId rows = kNoValue;  // of an input with rows of its own
  int64_t first = 0;
  bool added = false;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .reads("rows", rows)
        .takes("first", first, kOptional)
        .takes("added", added, kOptional)
        .makes("out", out);
  }
};

struct SelectOutputs {
  static constexpr const char* kName = "select_outputs";
  static constexpr const char* kDoc =
      "Return the rows of the batch that want an output: [outputs, cols].";
  ValueId x = kNoValue;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).makes("out", out);
  }
};

// Columns first .. first + count - 1 of each `period` columns of x, which has whole periods.
struct SelectColumns {
  static constexpr const char* kName = "select_columns";
  static constexpr const char* kDoc =
      "Return columns ``first`` to ``first + count - 1`` of each ``period`` columns.";
  ValueId x = kNoValue;
  int64_t first = 0, count = 0, period = 0;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .takes("first", first)
        .takes("count", count)
        .takes("period", period)
        .makes("out", out);
  }
};

// Heads in another order: a row of x, seen as [outer, inner, columns of a head], becomes [inner,
// outer, columns of a head].
struct TransposeHeads {
  static constexpr const char* kName = "transpose_heads";
  static constexpr const char* kDoc =
      "Return x with rows [outer, inner, width] of heads as rows [inner, outer, width].";
  ValueId x = kNoValue;
  int outer = 0, inner = 0;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("outer", outer).takes("inner", inner).makes("out", out);
  }
};

// Heads of a and of b side by side: [rows, heads * (columns of a head of a + those of b)].
struct JoinHeads {
  static constexpr const char* kName = "join_heads";
  static constexpr const char* kDoc =
      "Return heads of a and of b side by side: [n, a.cols + b.cols].";
  ValueId a = kNoValue;
  ValueId b = kNoValue;
  int heads = 0;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("a", a).reads("b", b).takes("heads", heads).makes("out", out);
  }
};

// The rows of a, then those of b: the tokens of the batch's one sequence.
struct JoinRows {
  static constexpr const char* kName = "join_rows";
  static constexpr const char* kDoc =
      "Return the rows of two inputs, those of a first: [tokens, cols]. A step takes one "
      "sequence.";
  ValueId a = kNoValue;
  ValueId b = kNoValue;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("a", a).reads("b", b).makes("out", out);
  }
};

// What JoinRows joins, taken apart: the first rows of x and the last ones.
struct SplitRows {
  static constexpr const char* kName = "split_rows";
  static constexpr const char* kDoc =
      "Return the rows of x, apart again: as many as ``first`` has, and as ``last`` has.";
  ValueId x = kNoValue;
  RowSpace first_rows, last_rows;
  ValueId first = kNoValue;
  ValueId last = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .takes("first", first_rows)
        .takes("last", last_rows)
        .makes("first", first)
        .makes("last", last);
  }
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
