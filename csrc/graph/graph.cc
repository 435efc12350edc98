#include "graph/graph.h"

#include <set>

#include "base/check.h"

namespace oxibonsai::graph {
namespace {

constexpr int kMostHeads = 1 << 16;
constexpr int kLargestDim = 4096;
constexpr int64_t kMostColumns = int64_t{1} << 31;  // of a value: sizes of rows cannot overflow

// Collects pointers to the values that an op reads and makes.
class ValueCollector {
 public:
  std::vector<ValueId*> inputs, outputs;

  ValueCollector& reads(const char*, ValueId& id, Need = kRequired) {
    if (id != kNoValue) inputs.push_back(&id);
    return *this;
  }
  template <class T>
  ValueCollector& takes(const char*, T&, Need = kRequired) {
    return *this;
  }
  ValueCollector& state(const char*, int&) { return *this; }
  ValueCollector& makes(const char*, ValueId& id) {
    outputs.push_back(&id);
    return *this;
  }
  ValueCollector& makes(const char*, std::vector<ValueId>& ids, size_t count) {
    ids.resize(count, kNoValue);
    for (ValueId& id : ids) outputs.push_back(&id);
    return *this;
  }
};

ValueCollector values_in(Op* op) {
  ValueCollector collector;
  op->visit([&](auto& o) { o.fields(collector); });
  return collector;
}

std::vector<ValueId> ids(const std::vector<ValueId*>& pointers) {
  std::vector<ValueId> all;
  for (const ValueId* p : pointers) all.push_back(*p);
  return all;
}

Weights matrices(const Linear& op) { return op.weights; }
Weights matrices(const ExpertLinear& op) { return {op.weight}; }
Weights matrices(const HeadLinear& op) { return {op.weight}; }
template <class Other>
Weights matrices(const Other&) {
  return {};
}

}  // namespace

Op::Op(const Op&) = default;
Op::Op(Op&&) noexcept = default;
Op& Op::operator=(const Op&) = default;
Op& Op::operator=(Op&&) noexcept = default;
Op::~Op() = default;

const char* name_of(const Op& op) {
  return op.visit([](const auto& o) { return std::decay_t<decltype(o)>::kName; });
}

std::vector<ValueId*> inputs_in(Op* op) { return values_in(op).inputs; }
std::vector<ValueId*> outputs_in(Op* op) { return values_in(op).outputs; }

// Through the pointers of these two nothing is written.
std::vector<ValueId> inputs_of(const Op& op) { return ids(inputs_in(const_cast<Op*>(&op))); }
std::vector<ValueId> outputs_of(const Op& op) { return ids(outputs_in(const_cast<Op*>(&op))); }

Weights matrices_of(const Op& op) {
  return op.visit([](const auto& o) { return matrices(o); });
}

int Graph::add_paged_layer(const PagedLayer& layer) {
  if (layer.kv_heads < 1 || layer.kv_heads > kMostHeads || layer.key_dim < 1 ||
      layer.key_dim > kLargestDim || layer.value_dim < 1 || layer.value_dim > kLargestDim)
    throw RequestError("a layer of the cache needs 1 to 65536 heads of 1 to 4096 dims");
  if (layer.value_in_key && layer.value_dim > layer.key_dim)
    throw RequestError("a value that lies in its key cannot have more dims than the key");
  state_.paged.push_back(layer);
  return static_cast<int>(state_.paged.size()) - 1;
}

int Graph::add_slot(int64_t floats) {
  if (floats < 1 || floats > (int64_t{1} << 32))
    throw RequestError("a slot needs at least one float");
  state_.slot.push_back(floats);
  return static_cast<int>(state_.slot.size()) - 1;
}

std::vector<ValueId> Graph::add(Op op) {
  const std::string where = "op " + std::to_string(ops_.size()) + " (" + name_of(op) + ")";
  const Checker checker(values_, state_, where);
  auto made = op.visit([&](const auto& o) { return infer(o, checker); });
  for (const Value& value : made)
    if (value.cols > kMostColumns)
      throw RequestError(where + " gives rows of more than 2^31 values");
  std::vector<ValueId> result;
  for (ValueId* out : outputs_in(&op)) {
    *out = static_cast<ValueId>(values_.size() + result.size());
    result.push_back(*out);
  }
  values_.insert(values_.end(), made.begin(), made.end());
  ops_.push_back(std::move(op));
  return result;
}

void Graph::set_output(const std::string& name, ValueId id) {
  if (value(id).type != ValueType::kF32) throw RequestError("the output " + name + " is not float");
  for (const auto& [other, value] : outputs_)
    if (other == name || value == id)
      throw RequestError("the graph has the output " + other + " already");
  for (const Op& op : ops_) {
    const auto* input = std::get_if<Input>(&op);
    if (input != nullptr && input->out == id)
      throw RequestError("the output " + name + " is an input of the graph");
  }
  outputs_.emplace_back(name, id);
}

const Value& Graph::value(ValueId id) const {
  if (id < 0 || static_cast<size_t>(id) >= values_.size())
    throw RequestError("the graph has no value " + std::to_string(id));
  return values_[static_cast<size_t>(id)];
}

Weights Graph::matrices() const {
  Weights all;
  std::set<const Weight*> seen;
  for (const Op& op : ops_)
    for (const WeightPtr& w : matrices_of(op))
      if (seen.insert(w.get()).second) all.push_back(w);
  return all;
}

}  // namespace oxibonsai::graph
