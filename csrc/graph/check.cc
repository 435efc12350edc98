#include "graph/check.h"

#include "base/check.h"

namespace oxibonsai::graph {

std::string to_string(const RowSpace& rows) {
  switch (rows.kind) {
    case RowSpace::Kind::kTokens:
      return "tokens";
    case RowSpace::Kind::kOutputs:
      return "outputs";
    case RowSpace::Kind::kRouted:
      return "routed(" + std::to_string(rows.k) + ")";
    case RowSpace::Kind::kInput:
      return "input(" + rows.name + ")";
    case RowSpace::Kind::kSequences:
      return "sequences";
    case RowSpace::Kind::kPixels:
      return "pixels(" + std::to_string(rows.k) + ")";
  }
  return "";
}

void Checker::require(bool holds, const char* what) const {
  if (!holds) throw RequestError(where_ + ": " + what);
}

const Value& Checker::value(ValueId id) const {
  require(id >= 0 && static_cast<size_t>(id) < values_.size(), "an input is no value of the graph");
  return values_[static_cast<size_t>(id)];
}

const Value& Checker::floats(ValueId id) const {
  const Value& v = value(id);
  require(v.type == ValueType::kF32, "an input is not float");
  return v;
}

void Checker::same_rows(ValueId a, ValueId b) const {
  require(floats(a).rows == floats(b).rows, "the inputs have different row spaces");
}

void Checker::vector(const Vector& v, int64_t size) const {
  require(v != nullptr, "a vector is missing");
  require(static_cast<int64_t>(v->size()) == size, "a vector has another width");
}

}  // namespace oxibonsai::graph
