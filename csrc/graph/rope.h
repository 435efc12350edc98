#pragma once

#include "graph/batch.h"
#include "graph/check.h"

namespace oxibonsai::graph {

// cos, then sin, of position * frequency for each pair, times `scale`: [tokens, 2 * pairs]. With a
// temperature they are also multiplied by 1 + temperature * ln(1 + floor((position + offset) /
// step)), for queries that grow with the length of a text.
//
// A row may have positions on several axes (Batch::positions), of which each pair reads its own:
// time, height and width of M-RoPE, rows and columns of a picture's patches.
struct RopeTable {
  static constexpr const char* kName = "rope_table";
  static constexpr const char* kDoc =
      R"(Return cos, then sin, of position * frequency, times ``scale``: [tokens, 2 * pairs].

With a temperature they are also multiplied by
``1 + temperature * ln(1 + floor((position + temperature_offset) / temperature_step))``.)";
  Vector frequencies;
  float scale = 1.0f;
  float temperature = 0.0f;
  int temperature_step = 0;  // positions; 0: no temperature
  int temperature_offset = 0;
  std::vector<int32_t> axes = {};  // [pairs]; empty: all read the position in the sequence
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.takes("frequencies", frequencies)
        .takes("scale", scale)
        .takes("temperature", temperature, kOptional)
        .takes("temperature_step", temperature_step, kOptional)
        .takes("temperature_offset", temperature_offset, kOptional)
        .takes("axes", axes, kOptional)
        .makes("out", out);
  }
  // Axes that the table reads; 0: none but the position in the sequence.
  int32_t axis_count() const;
  // A row of the table, whose token has this position in its sequence. The angle is one float32
  // product.
  void write_row(const Batch& batch, int64_t row, int32_t position, float* out) const;
};

// Every head of x rotated by the table; dims past the table's pairs stay.
struct Rope {
  static constexpr const char* kName = "rope";
  static constexpr const char* kDoc =
      "Return every head of x rotated by the table; dims past the table's pairs stay.";
  ValueId x = kNoValue;
  ValueId table = kNoValue;
  int head_dim = 0;
  bool interleaved = false;  // pairs (2i, 2i + 1) instead of (i, i + pairs)
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x)
        .reads("table", table)
        .takes("head_dim", head_dim)
        .takes("interleaved", interleaved, kOptional)
        .makes("out", out);
  }
};

std::vector<Value> infer(const RopeTable& op, const Checker& c);
std::vector<Value> infer(const Rope& op, const Checker& c);

}  // namespace oxibonsai::graph
