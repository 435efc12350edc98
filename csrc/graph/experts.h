#pragma once

// Mixtures of experts: each token is sent to the few experts that a router chooses for it.

#include "graph/check.h"
#include "graph/weight.h"

namespace oxibonsai::graph {

// Chooses `k` experts for each token by its scores, the highest first, the lower index where two
// are equal, and says with what weight each counts. Where the experts form groups, only those of
// the best groups can be chosen.
//
// The rows of routed(k) are sorted by expert, so that a prompt reads each matrix once: row
// places[t, i] belongs to the i-th expert of token t.
struct Route {
  static constexpr const char* kName = "route";
  static constexpr const char* kDoc =
      "Return the chosen experts' weights, places and panels for each token.";
  enum class Scoring : uint8_t {
    kSoftmax,          // over all experts
    kSoftmaxOfChosen,  // over the chosen ones
    kSigmoid,
    // Each of the chosen over those that are left and hardly below it: SparseMixer.
    kSparseMixer,
  };
  ValueId scores = kNoValue;  // [tokens, experts]
  int k = 0;
  Scoring scoring = Scoring::kSoftmax;
  Vector selection_bias;   // [experts], added to what experts are chosen by, not to their weights
  bool normalize = false;  // divide the weights of a token by their sum
  float scale = 1.0f;      // of the weights, at last
  int groups = 1;          // of neighbouring experts
  int kept_groups = 1;     // those with the highest sums of ...
  int best_of_group = 1;   // ... what so many of their experts are chosen by
  Vector expert_scale;     // [experts] or null: of each expert's weight, after all else
  ValueId weights = kNoValue;  // [tokens, k]
  ValueId places = kNoValue;   // [tokens, k]: a row of routed(k)
  ValueId panels = kNoValue;   // [routed(k), kPanelColumns]

  template <class F>
  void fields(F& f) {
    f.reads("scores", scores)
        .takes("k", k)
        .takes("scoring", scoring, kOptional)
        .takes("selection_bias", selection_bias, kOptional)
        .takes("normalize", normalize, kOptional)
        .takes("scale", scale, kOptional)
        .takes("groups", groups, kOptional)
        .takes("kept_groups", kept_groups, kOptional)
        .takes("best_of_group", best_of_group, kOptional)
        .takes("expert_scale", expert_scale, kOptional)
        .makes("weights", weights)
        .makes("places", places)
        .makes("panels", panels);
  }
};

// Columns of Route::panels. Row r says which (token, choice) the routed row r stands for; and what
// panel r is: neighbouring rows of one expert, at most kPanelRows.
constexpr int64_t kPanelColumns = 3;
constexpr int kPanelSource = 0;  // token * k + choice
constexpr int kPanelFirst = 1;   // its first routed row; the number of all rows past the last panel
constexpr int kPanelExpert = 2;
constexpr int kPanelRows = 32;

// Rows of the tokens, each as often as it has experts: [routed(k), cols].
struct Dispatch {
  static constexpr const char* kName = "dispatch";
  static constexpr const char* kDoc =
      "Return rows of x, each once for each of its experts: [routed, cols].";
  ValueId x = kNoValue;        // [tokens, cols]
  ValueId panels = kNoValue;   // of Route
  ValueId weights = kNoValue;  // of Route, which the rows are multiplied by; kNoValue: by nothing
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).reads("panels", panels).reads("weights", weights, kOptional).makes("out", out);
  }
};

// Each row times the matrix of its expert, transposed, plus its bias: [routed(k), rows].
struct ExpertLinear {
  static constexpr const char* kName = "expert_linear";
  static constexpr const char* kDoc =
      "Return each row times the transposed matrix of its expert: [routed, rows of a matrix].";
  ValueId x = kNoValue;       // [routed(k), cols]
  ValueId panels = kNoValue;  // of Route
  WeightPtr weight;           // one matrix an expert
  Vector bias;                // [experts, rows] or null
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .reads("panels", panels)
        .takes("weight", weight)
        .takes("bias", bias, kOptional)
        .makes("out", out);
  }
};

// The weighted sum of what a token's experts gave, in the order of its choices: [tokens, cols].
struct Combine {
  static constexpr const char* kName = "combine";
  static constexpr const char* kDoc =
      "Return the sum of what a token's experts gave, by their weights or plain: [tokens, "
      "cols].";
  ValueId x = kNoValue;        // [routed(k), cols]
  ValueId places = kNoValue;   // of Route
  ValueId weights = kNoValue;  // of Route; kNoValue: a plain sum
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).reads("places", places).reads("weights", weights, kOptional).makes("out", out);
  }
};

std::vector<Value> infer(const Dispatch& op, const Checker& c);
std::vector<Value> infer(const Route& op, const Checker& c);
std::vector<Value> infer(const ExpertLinear& op, const Checker& c);
std::vector<Value> infer(const Combine& op, const Checker& c);

}  // namespace oxibonsai::graph
