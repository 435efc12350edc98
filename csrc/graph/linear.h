#pragma once

// Linear layers and what belongs to their inputs: the Hadamard transform of folded weights, the
// rounding to int8, sums for an importance matrix.

#include "graph/check.h"
#include "graph/input_sums.h"
#include "graph/weight.h"

namespace oxibonsai::graph {

// out[i] = x * weights[i]^T (+ biases[i]) (+ add, for a single weight). Weights that share an input
// are one op, so that it is rounded once and their rows share the threads.
struct Linear {
  static constexpr const char* kName = "linear";
  static constexpr const char* kDoc =
      "Return x times each weight's transpose, plus its bias; ``add`` joins a single weight's "
      "result.";
  ValueId x = kNoValue;
  ValueId add = kNoValue;  // kNoValue: nothing is added
  Weights weights;
  std::vector<Vector> biases;  // one a weight, or none at all
  std::vector<ValueId> out;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .takes("weights", weights)
        .takes("biases", biases, kOptional)
        .reads("add", add, kOptional)
        .makes("out", out, weights.size());
  }
};

// Each head of x times a matrix of its own, transposed: [rows, heads * rows of a matrix]. What
// latent attention multiplies queries and results with.
struct HeadLinear {
  static constexpr const char* kName = "head_linear";
  static constexpr const char* kDoc =
      "Return each head of x times a matrix of its own, transposed.";
  ValueId x = kNoValue;  // [rows, heads * cols of a matrix], rounded by the op itself
  WeightPtr weight;      // one matrix a head, as experts have
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("weight", weight).makes("out", out);
  }
};

// x rounded to int8 in groups of 32. Lowering puts it before what reads integers; where an op that
// can round its result itself makes x, lowering joins the two.
struct RoundInt8 {
  static constexpr const char* kName = "round_int8";
  ValueId x = kNoValue;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).makes("out", out);
  }
};

// out = after * H(before * x), H the orthonormal Hadamard matrix in Sylvester's order over each
// `block` values of a row. A null factor stands for ones.
struct Hadamard {
  static constexpr const char* kName = "hadamard";
  static constexpr const char* kDoc =
      "Return after * H(before * x), H the orthonormal Hadamard matrix over each block of a "
      "row.";
  ValueId x = kNoValue;
  int64_t block = 0;  // a power of two that divides the width
  Vector before, after;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .takes("block", block)
        .takes("before", before, kOptional)
        .takes("after", after, kOptional)
        .makes("out", out);
  }
};

struct Observe {
  static constexpr const char* kName = "observe";
  static constexpr const char* kDoc = "Add the squares of x to ``sums``.";
  ValueId x = kNoValue;
  std::shared_ptr<InputSums> sums;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("sums", sums);
  }
};

std::vector<Value> infer(const HeadLinear& op, const Checker& c);
std::vector<Value> infer(const Linear& op, const Checker& c);
std::vector<Value> infer(const RoundInt8& op, const Checker& c);
std::vector<Value> infer(const Hadamard& op, const Checker& c);
std::vector<Value> infer(const Observe& op, const Checker& c);

}  // namespace oxibonsai::graph
