#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace oxibonsai::graph {

// What the rows of a value stand for; a step gives each row space its number of rows.
struct RowSpace {
  enum class Kind : uint8_t {
    kTokens,     // of the batch
    kOutputs,    // the tokens that want a result
    kRouted,     // the tokens, each `k` times: once for each expert chosen for it
    kInput,      // the rows of the input `name`
    kSequences,  // one for each span of the batch
    kPixels,  // k x k for each token, where the tokens are a grid: the picture's rows, one by one
  };
  Kind kind = Kind::kTokens;
  int k = 1;
  std::string name;

  bool operator==(const RowSpace& o) const { return kind == o.kind && k == o.k && name == o.name; }
  bool operator!=(const RowSpace& o) const { return !(*this == o); }
};

inline RowSpace tokens() { return {}; }
inline RowSpace outputs() { return {RowSpace::Kind::kOutputs, 1, ""}; }
inline RowSpace routed(int k) { return {RowSpace::Kind::kRouted, k, ""}; }
inline RowSpace sequences() { return {RowSpace::Kind::kSequences, 1, ""}; }
inline RowSpace pixels(int k) {
  return k == 1 ? tokens() : RowSpace{RowSpace::Kind::kPixels, k, ""};
}
inline RowSpace input_rows(std::string name) {
  return {RowSpace::Kind::kInput, 1, std::move(name)};
}

// In words, for messages.
std::string to_string(const RowSpace& rows);

enum class ValueType : uint8_t {
  kF32,
  kInt8,  // rounded in groups of 32 with a scale each; lowering makes these
  kI32,   // indices, of experts for example
};

// A matrix: `cols` elements for each row of its row space.
struct Value {
  RowSpace rows;
  int64_t cols;
  ValueType type = ValueType::kF32;
};

// Index of a value in its graph.
using ValueId = int32_t;
constexpr ValueId kNoValue = -1;

// Constants of an op. Null stands for an absent one.
using Vector = std::shared_ptr<const std::vector<float>>;

// Whether a field of an op must be given: always, always but it may be None, or else it is what
// the struct begins with.
enum Need : uint8_t { kRequired, kNullable, kOptional };

}  // namespace oxibonsai::graph
