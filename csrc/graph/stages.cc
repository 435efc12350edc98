#include "graph/stages.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"

namespace oxibonsai::graph {
namespace {

// Ops that a stage can run itself, as they read nothing but the batch.
bool reads_batch_only(const Op& op) { return is_any<Input, RopeTable>(op); }

// Indices of the ops that make each value.
std::vector<size_t> makers(const Graph& graph) {
  std::vector<size_t> all(graph.values().size());
  for (size_t i = 0; i < graph.ops().size(); ++i)
    for (const ValueId id : outputs_of(graph.ops()[i])) all[static_cast<size_t>(id)] = i;
  return all;
}

std::set<ValueId> crossing(const Graph& graph, size_t at) {
  const std::vector<size_t> maker = makers(graph);
  std::set<ValueId> values;
  for (size_t i = at; i < graph.ops().size(); ++i)
    for (const ValueId id : inputs_of(graph.ops()[i])) {
      if (id == kNoValue) continue;
      const size_t made = maker[static_cast<size_t>(id)];
      if (made < at && !reads_batch_only(graph.ops()[made])) values.insert(id);
    }
  return values;
}

bool may_cross(const Value& v) {
  return v.type == ValueType::kF32 &&
         (v.rows.kind == RowSpace::Kind::kTokens || v.rows.kind == RowSpace::Kind::kOutputs);
}

// State that stages may not share: each layer, or entry, belongs to the stage that names it first.
class Owners {
 public:
  explicit Owners(const char* what) : what_(what) {}

  // Index within the stage; none yet: `declare` makes it.
  template <class Declare>
  int local(int index, size_t stage, std::vector<int>* of_stage, const Declare& declare) {
    const auto [found, is_new] = owner_.insert({index, {stage, 0}});
    if (found->second.first != stage)
      throw UnsupportedError("two parts of the model share " + std::string(what_) + " " +
                             std::to_string(index) +
                             ", so that no device can have only one of "
                             "them: move the border between the devices");
    if (is_new) {
      found->second.second = declare();
      of_stage->push_back(index);
    }
    return found->second.second;
  }

 private:
  const char* what_;
  std::map<int, std::pair<size_t, int>> owner_;
};

class Cutter {
 public:
  Cutter(const Graph& graph, const std::vector<size_t>& points)
      : from_(graph), maker_(makers(graph)), stages_(points.size() + 1) {
    for (size_t i = 0; i < graph.ops().size(); ++i)
      stage_of_.push_back(
          static_cast<size_t>(std::upper_bound(points.begin(), points.end(), i) - points.begin()));
    moved_.resize(stages_.size());
  }

  std::vector<Stage> run() {
    for (const auto& [name, id] : from_.outputs()) names_[id] = name;
    for (size_t i = 0; i < from_.ops().size(); ++i)
      for (const ValueId id : inputs_of(from_.ops()[i]))
        if (id != kNoValue && stage_of(id) != stage_of_[i] && !is_local(id)) sent_.insert(id);
    for (size_t i = 0; i < from_.ops().size(); ++i)
      if (!reads_batch_only(from_.ops()[i])) add(from_.ops()[i], stage_of_[i]);
    for (const auto& [name, id] : from_.outputs()) sent_.insert(id);
    for (const ValueId id : sent_) {
      const size_t stage = stage_of(id);
      stages_[stage].graph.set_output(name_of(id), moved_[stage].at(id));
    }
    return std::move(stages_);
  }

 private:
  size_t stage_of(ValueId id) const { return stage_of_[maker_[static_cast<size_t>(id)]]; }
  bool is_local(ValueId id) const {
    return reads_batch_only(from_.ops()[maker_[static_cast<size_t>(id)]]);
  }
  std::string name_of(ValueId id) const {
    const auto found = names_.find(id);
    return found != names_.end() ? found->second : "value." + std::to_string(id);
  }

  void add(Op op, size_t stage) {
    const std::vector<ValueId> before = outputs_of(op);
    for (ValueId* id : inputs_in(&op))
      if (*id != kNoValue) *id = value_in(*id, stage);
    op.visit([&](auto& o) { own_state(&o, stage); });
    const std::vector<ValueId> made = stages_[stage].graph.add(std::move(op));
    for (size_t i = 0; i < made.size(); ++i) moved_[stage][before[i]] = made[i];
  }

  // A value of the whole graph in a stage: made there, or received.
  ValueId value_in(ValueId id, size_t stage) {
    const auto found = moved_[stage].find(id);
    if (found != moved_[stage].end()) return found->second;
    if (is_local(id)) {
      add(from_.ops()[maker_[static_cast<size_t>(id)]], stage);
      return moved_[stage].at(id);
    }
    const Value& v = from_.value(id);
    if (!may_cross(v))
      throw UnsupportedError("the model cannot be cut here: rows of " + to_string(v.rows) +
                             " would go from one device to another");
    return moved_[stage][id] = stages_[stage].graph.add(Input{name_of(id), v.rows, v.cols}).front();
  }

  template <class T>
  void own_state([[maybe_unused]] T* op, size_t stage) {
    [[maybe_unused]] Stage& s = stages_[stage];
    if constexpr (kUsesPages<T>)
      op->layer = paged_.local(op->layer, stage, &s.paged, [&] {
        return s.graph.add_paged_layer(from_.state().paged[static_cast<size_t>(op->layer)]);
      });
    if constexpr (kUsesSlot<T>)
      op->slot = slots_.local(op->slot, stage, &s.slots, [&] {
        return s.graph.add_slot(from_.state().slot[static_cast<size_t>(op->slot)]);
      });
  }

  const Graph& from_;
  std::vector<size_t> maker_, stage_of_;
  std::vector<Stage> stages_;
  std::vector<std::map<ValueId, ValueId>> moved_;  // by stage
  std::map<ValueId, std::string> names_;
  std::set<ValueId> sent_;
  Owners paged_{"layer of the cache"}, slots_{"entry of recurrent state"};
};

}  // namespace

int64_t crossing_columns(const Graph& graph, size_t at) {
  int64_t sum = 0;
  for (const ValueId id : crossing(graph, at)) {
    const Value& v = graph.value(id);
    if (!may_cross(v)) return -1;
    sum += v.cols;
  }
  return sum;
}

std::vector<Stage> cut(const Graph& graph, const std::vector<size_t>& points) {
  for (size_t i = 0; i < points.size(); ++i)
    if (points[i] > graph.ops().size() || (i > 0 && points[i] < points[i - 1]))
      throw RequestError("a graph is cut before its ops, in ascending order");
  return Cutter(graph, points).run();
}

}  // namespace oxibonsai::graph
