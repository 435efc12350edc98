#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/op.h"

namespace oxibonsai::graph {

// A forward pass: ops in the order in which they may run, each of which reads values made before it
// and makes new ones. It knows no device, no batch and no threads; a device compiles it.
class Graph {
 public:
  // Declares a layer of the cache, or an entry of the slots, and returns its index.
  int add_paged_layer(const PagedLayer& layer);
  int add_slot(int64_t floats);

  // Checks an op and appends it; returns the values that it makes. RequestError names the op and
  // what does not fit.
  std::vector<ValueId> add(Op op);

  // Names a value as a result of the pass.
  void set_output(const std::string& name, ValueId value);

  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Value>& values() const { return values_; }
  const Value& value(ValueId id) const;
  const StateSpec& state() const { return state_; }
  const std::vector<std::pair<std::string, ValueId>>& outputs() const { return outputs_; }
  // Of all linear layers, each once, in the order of their first use.
  Weights matrices() const;

 private:
  std::vector<Op> ops_;
  std::vector<Value> values_;
  StateSpec state_;
  std::vector<std::pair<std::string, ValueId>> outputs_;
};

}  // namespace oxibonsai::graph
