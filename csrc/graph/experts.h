#pragma once

// Mixtures of experts: each token is sent to the few experts that a router chooses for it.

#include "graph/check.h"
#include "graph/weight.h"

namespace oxibonsai::graph {

// Chooses `k` experts for each token by its scores, the highest first, the lower index where two
// are equal, and says with what weight each counts.
struct Route {
  static constexpr const char* kName = "route";
  enum class Scoring : uint8_t {
    kSoftmax,          // over all experts
    kSoftmaxOfChosen,  // over the chosen ones
    kSigmoid,
  };
  ValueId scores = kNoValue;  // [tokens, experts]
  int k = 0;
  Scoring scoring = Scoring::kSoftmax;
  Vector selection_bias;   // [experts], added to what experts are chosen by, not to their weights
  bool normalize = false;  // divide the weights of a token by their sum
  float scale = 1.0f;      // of the weights, at last
  ValueId experts = kNoValue;  // [tokens, k] indices
  ValueId weights = kNoValue;  // [tokens, k]
  std::vector<ValueId*> inputs() { return {&scores}; }
  std::vector<ValueId*> outputs() { return {&experts, &weights}; }
};

// Each row times the matrix of its expert, transposed: [routed(k), rows]. x has the rows of the
// tokens, each of which goes to k experts, or of routed(k).
struct ExpertLinear {
  static constexpr const char* kName = "expert_linear";
  ValueId x = kNoValue;
  ValueId experts = kNoValue;  // of Route
  WeightPtr weight;            // one matrix an expert
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x, &experts}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

// The weighted sum of what a token's experts gave, in the order of Route: [tokens, cols].
struct Combine {
  static constexpr const char* kName = "combine";
  ValueId x = kNoValue;        // [routed(k), cols]
  ValueId weights = kNoValue;  // of Route
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x, &weights}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

std::vector<Value> infer(const Route& op, const Checker& c);
std::vector<Value> infer(const ExpertLinear& op, const Checker& c);
std::vector<Value> infer(const Combine& op, const Checker& c);

}  // namespace oxibonsai::graph
