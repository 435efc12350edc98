#include "graph/experts.h"

namespace oxibonsai::graph {
namespace {

// The rows that panels of a router sort.
RowSpace rows_of_panels(ValueId panels, const Checker& c) {
  const Value& v = c.value(panels);
  c.require(v.type == ValueType::kI32 && v.rows.kind == RowSpace::Kind::kRouted &&
                v.cols == kPanelColumns,
            "the panels are not those of a router");
  return v.rows;
}

}  // namespace

std::vector<Value> infer(const Route& op, const Checker& c) {
  const Value& scores = c.floats(op.scores);
  c.require(scores.rows == tokens(), "a router scores the rows of the tokens");
  c.require(op.groups >= 1 && scores.cols % op.groups == 0, "experts form no such groups");
  c.require(op.kept_groups >= 1 && op.kept_groups <= op.groups,
            "more groups of experts are kept than there are");
  const int64_t in_group = scores.cols / op.groups;
  c.require(op.best_of_group >= 1 && op.best_of_group <= in_group,
            "a group has fewer experts than its score needs");
  c.require(op.k >= 1 && op.k <= in_group * op.kept_groups,
            "more experts are chosen than there are");
  if (op.selection_bias != nullptr) c.vector(op.selection_bias, scores.cols);
  if (op.expert_scale != nullptr) c.vector(op.expert_scale, scores.cols);
  c.require(op.scoring != Route::Scoring::kSparseMixer ||
                (op.selection_bias == nullptr && op.expert_scale == nullptr && op.groups == 1 &&
                 !op.normalize),
            "SparseMixer knows no bias, no groups, no norm and no scales of experts");
  return {{tokens(), op.k},
          {tokens(), op.k, ValueType::kI32},
          {routed(op.k), kPanelColumns, ValueType::kI32}};
}

std::vector<Value> infer(const Dispatch& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  const RowSpace to = rows_of_panels(op.panels, c);
  c.require(x.rows == tokens(), "only rows of the tokens go to experts");
  if (op.weights != kNoValue) {
    const Value& weights = c.floats(op.weights);
    c.require(weights.rows == tokens() && weights.cols == to.k,
              "the weights are not those of the rows");
  }
  return {{to, x.cols}};
}

std::vector<Value> infer(const ExpertLinear& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  const RowSpace to = rows_of_panels(op.panels, c);
  c.require(x.rows == to, "the input has no row for each expert chosen");
  c.require(op.weight != nullptr && op.weight->cols() == x.cols,
            "the weight has another width than its input");
  c.require(!op.weight->integer() || x.cols % 32 == 0, "int8 needs a width of whole groups of 32");
  if (op.bias != nullptr) c.vector(op.bias, op.weight->experts() * op.weight->rows());
  return {{to, op.weight->rows()}};
}

std::vector<Value> infer(const Combine& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  const Value& places = c.value(op.places);
  c.require(places.type == ValueType::kI32 && places.rows == tokens() &&
                x.rows == routed(static_cast<int>(places.cols)),
            "the places are not those of the rows");
  if (op.weights != kNoValue) {
    const Value& weights = c.floats(op.weights);
    c.require(weights.rows == tokens() && weights.cols == places.cols,
              "the weights are not those of the rows");
  }
  return {{tokens(), x.cols}};
}

}  // namespace oxibonsai::graph
