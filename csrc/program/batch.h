#pragma once

#include <cstdint>
#include <vector>

namespace oxibonsai::program {

// What one step runs: any mix of prompt chunks and single tokens. Rows of one sequence lie
// together, in the order of their positions.
struct Batch {
  std::vector<int32_t> tokens;              // [rows]
  std::vector<int32_t> positions;           // [rows]
  std::vector<int32_t> sequence;            // [rows]: index into pages
  std::vector<std::vector<int32_t>> pages;  // per sequence: page of positions 64i .. 64i + 63
  std::vector<int32_t> outputs;             // rows that want logits
  std::vector<int32_t> pools;               // per sequence: the pool of its pages; empty: all 0

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

}  // namespace oxibonsai::program
