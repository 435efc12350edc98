#pragma once

// What a diffusion transformer does with its time step: sines of it, and rows made of them that
// shift, scale and gate all tokens alike.

#include "graph/check.h"

namespace oxibonsai::graph {

struct Sinusoids {
  static constexpr const char* kName = "sinusoids";
  static constexpr const char* kDoc =
      "Return cos, then sin, of x * frequency: [n, 2 * frequencies]; x has one column.";
  ValueId x = kNoValue;  // one column
  Vector frequencies;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("frequencies", frequencies).makes("out", out);
  }
};

struct Modulate {
  static constexpr const char* kName = "modulate";
  static constexpr const char* kDoc =
      "Return x * (1 + scale) + shift in every row; scale and shift are one row of the "
      "sequence.";
  ValueId x = kNoValue;
  ValueId scale = kNoValue;  // [sequences, cols of x]
  ValueId shift = kNoValue;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).reads("scale", scale).reads("shift", shift).makes("out", out);
  }
};

struct AddGated {
  static constexpr const char* kName = "add_gated";
  static constexpr const char* kDoc =
      "Return x + gate * y in every row; the gate is one row of the sequence.";
  ValueId x = kNoValue;
  ValueId y = kNoValue;
  ValueId gate = kNoValue;  // [sequences, cols of x]
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).reads("y", y).reads("gate", gate).makes("out", out);
  }
};

std::vector<Value> infer(const Sinusoids& op, const Checker& c);
std::vector<Value> infer(const Modulate& op, const Checker& c);
std::vector<Value> infer(const AddGated& op, const Checker& c);

}  // namespace oxibonsai::graph
