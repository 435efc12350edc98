#pragma once

#include "graph/check.h"

namespace oxibonsai::graph {

// out = x / sqrt(mean(x^2) + eps) * weight over each of `groups` equal parts of a row. The weight
// is as wide as a part, or as the row: then each part has its own.
struct RmsNorm {
  static constexpr const char* kName = "rms_norm";
  static constexpr const char* kDoc =
      "Return x / sqrt(mean(x^2) + eps) * weight over each of ``groups`` parts of a row.";
  ValueId x = kNoValue;
  Vector weight;
  float eps = 0.0f;
  int groups = 1;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .takes("weight", weight)
        .takes("eps", eps)
        .takes("groups", groups, kOptional)
        .makes("out", out);
  }
};

// out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over each of `groups` equal parts of a
// row. The weight has the width of a part, or that of a row; so has the bias, which may be null.
struct LayerNorm {
  static constexpr const char* kName = "layer_norm";
  static constexpr const char* kDoc =
      R"(Return (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over each of ``groups`` parts of a row.

The weight has the width of a part, which all share, or of the whole row; so has the bias.)";
  ValueId x = kNoValue;
  Vector weight, bias;
  float eps = 0.0f;
  int groups = 1;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .takes("weight", weight)
        .takes("bias", bias, kNullable)
        .takes("eps", eps)
        .takes("groups", groups, kOptional)
        .makes("out", out);
  }
};

// out = x * sqrt(mean(like^2)) / sqrt(max(mean(x^2), floor)) over each row: as large as `like`.
struct MatchRms {
  static constexpr const char* kName = "match_rms";
  static constexpr const char* kDoc =
      "Return x * sqrt(mean(like^2) / max(mean(x^2), floor)) over each row.";
  ValueId x = kNoValue;
  ValueId like = kNoValue;  // of as many columns
  float floor = 0.0f;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).reads("like", like).takes("floor", floor).makes("out", out);
  }
};

// out = max(x - (mean(x) + deviations * sqrt(var(x))), 0) over each row: what is left of the
// largest values.
struct GaussianTopK {
  static constexpr const char* kName = "gaussian_top_k";
  static constexpr const char* kDoc =
      "Return max(x - (mean(x) + deviations * sqrt(var(x))), 0) over each row.";
  ValueId x = kNoValue;
  float deviations = 0.0f;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("deviations", deviations).makes("out", out);
  }
};

std::vector<Value> infer(const MatchRms& op, const Checker& c);
std::vector<Value> infer(const GaussianTopK& op, const Checker& c);
std::vector<Value> infer(const RmsNorm& op, const Checker& c);
std::vector<Value> infer(const LayerNorm& op, const Checker& c);

}  // namespace oxibonsai::graph
