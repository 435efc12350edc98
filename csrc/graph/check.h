#pragma once

#include <string>
#include <vector>

#include "graph/state.h"
#include "graph/value.h"

namespace oxibonsai::graph {

// What the check of an op may look at. An op is checked when it joins a graph: against the values
// that it reads and the state that the graph declares. RequestError where something does not hold.
class Checker {
 public:
  Checker(const std::vector<Value>& values, const StateSpec& state, std::string where)
      : values_(values), state_(state), where_(std::move(where)) {}

  void require(bool holds, const char* what) const;
  // A value that has been made.
  const Value& value(ValueId id) const;
  // A float value.
  const Value& floats(ValueId id) const;
  // Two float values of one row space.
  void same_rows(ValueId a, ValueId b) const;
  // A vector that is there, of so many elements.
  void vector(const Vector& v, int64_t size) const;
  const StateSpec& state() const { return state_; }

 private:
  const std::vector<Value>& values_;
  const StateSpec& state_;
  const std::string where_;
};

}  // namespace oxibonsai::graph
