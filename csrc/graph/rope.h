#pragma once

#include "graph/check.h"

namespace oxibonsai::graph {

// cos, then sin, of position * frequency for each pair, times `scale`: [tokens, 2 * pairs]. With a
// temperature they are also multiplied by 1 + temperature * ln(1 + floor((position + offset) /
// step)), for queries that grow with the length of a text.
struct RopeTable {
  static constexpr const char* kName = "rope_table";
  Vector frequencies;
  float scale = 1.0f;
  float temperature = 0.0f;
  int temperature_step = 0;  // positions; 0: no temperature
  int temperature_offset = 0;
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {}; }
  std::vector<ValueId*> outputs() { return {&out}; }
  // What cos and sin of a position are multiplied by.
  float magnitude(int32_t position) const;
};

// Every head of x rotated by the table; dims past the table's pairs stay.
struct Rope {
  static constexpr const char* kName = "rope";
  ValueId x = kNoValue;
  ValueId table = kNoValue;
  int head_dim = 0;
  bool interleaved = false;  // pairs (2i, 2i + 1) instead of (i, i + pairs)
  ValueId out = kNoValue;
  std::vector<ValueId*> inputs() { return {&x, &table}; }
  std::vector<ValueId*> outputs() { return {&out}; }
};

std::vector<Value> infer(const RopeTable& op, const Checker& c);
std::vector<Value> infer(const Rope& op, const Checker& c);

}  // namespace oxibonsai::graph
