#pragma once

// Ops in which an element depends on the same element of the inputs.

#include "graph/activation.h"
#include "graph/check.h"

namespace oxibonsai::graph {

struct Gated {
  static constexpr const char* kName = "gated";
  static constexpr const char* kDoc = "Return act(gate) * up.";
  ValueId gate = kNoValue;
  ValueId up = kNoValue;
  Activation activation = Activation::kSilu;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("gate", gate).reads("up", up).takes("activation", activation).makes("out", out);
  }
};

struct GateRows {
  static constexpr const char* kName = "gate_rows";
  static constexpr const char* kDoc = "Return x * sigmoid(gate), with one gate for each row.";
  ValueId x = kNoValue;
  ValueId gate = kNoValue;  // one column
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).reads("gate", gate).makes("out", out);
  }
};

// Sums of neighbouring parts of a row, by weights of that row: part o of the result is the sum of
// weights[o * parts + i] * part i of x, i = 0 .. parts - 1.
struct MixParts {
  static constexpr const char* kName = "mix_parts";
  static constexpr const char* kDoc =
      R"(Return weighted sums of the parts of a row: [n, results * width].

Args:
    x: [n, parts * width].
    weights: [n, results * parts]: for each result, those of all parts.
    parts: Their number.)";
  ValueId x = kNoValue;        // [n, parts * width]
  ValueId weights = kNoValue;  // [n, results * parts]
  int parts = 0;
  ValueId out = kNoValue;  // [n, results * width]

  template <class F>
  void fields(F& f) {
    f.reads("x", x).reads("weights", weights).takes("parts", parts).makes("out", out);
  }
};

struct Activate {
  static constexpr const char* kName = "activate";
  static constexpr const char* kDoc = "Return act(x).";
  ValueId x = kNoValue;
  Activation activation = Activation::kSilu;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("activation", activation).makes("out", out);
  }
};

struct Add {
  static constexpr const char* kName = "add";
  static constexpr const char* kDoc = "Return a + b.";
  ValueId a = kNoValue;
  ValueId b = kNoValue;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("a", a).reads("b", b).makes("out", out);
  }
};

struct AddVector {
  static constexpr const char* kName = "add_vector";
  static constexpr const char* kDoc = "Return x + vector in each row.";
  ValueId x = kNoValue;
  Vector vector;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("vector", vector).makes("out", out);
  }
};

struct Scale {
  static constexpr const char* kName = "scale";
  static constexpr const char* kDoc = "Return x * factor.";
  ValueId x = kNoValue;
  float factor = 1.0f;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("factor", factor).makes("out", out);
  }
};

struct Xielu {
  static constexpr const char* kName = "xielu";
  static constexpr const char* kDoc =
      "Return alpha_p x^2 + beta x where x > 0, else alpha_n (exp(min(x, eps)) - 1 - x) + "
      "beta x.";
  ValueId x = kNoValue;
  float alpha_p = 0.0f, alpha_n = 0.0f, beta = 0.0f, eps = 0.0f;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .takes("alpha_p", alpha_p)
        .takes("alpha_n", alpha_n)
        .takes("beta", beta)
        .takes("eps", eps)
        .makes("out", out);
  }
};

struct Clamp {
  static constexpr const char* kName = "clamp";
  static constexpr const char* kDoc = "Return x within -limit and limit.";
  ValueId x = kNoValue;
  float limit = 0.0f;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("limit", limit).makes("out", out);
  }
};

struct Softcap {
  static constexpr const char* kName = "softcap";
  static constexpr const char* kDoc = "Return cap * tanh(x / cap).";
  ValueId x = kNoValue;
  float cap = 0.0f;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("cap", cap).makes("out", out);
  }
};

std::vector<Value> infer(const Gated& op, const Checker& c);
std::vector<Value> infer(const GateRows& op, const Checker& c);
std::vector<Value> infer(const MixParts& op, const Checker& c);
std::vector<Value> infer(const Activate& op, const Checker& c);
std::vector<Value> infer(const Add& op, const Checker& c);
std::vector<Value> infer(const AddVector& op, const Checker& c);
std::vector<Value> infer(const Scale& op, const Checker& c);
std::vector<Value> infer(const Xielu& op, const Checker& c);
std::vector<Value> infer(const Clamp& op, const Checker& c);
std::vector<Value> infer(const Softcap& op, const Checker& c);

}  // namespace oxibonsai::graph
