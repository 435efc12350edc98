#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace oxibonsai::graph {

// Tokens of one sequence in a step: positions first .. first + count - 1.
struct Span {
  int32_t first = 0;
  int32_t count = 0;
  std::vector<int32_t> pages;  // page of positions 64i .. 64i + 63
  int32_t pool = 0;            // of the pools of pages that a step is given
  int32_t slot = 0;            // of recurrent state, where the graph has any
  // Slots that take the states after the last rows but the very last, whose state stays in `slot`:
  // of a draft, any of whose rows may turn out to be the last that holds.
  std::vector<int32_t> row_slots = {};
  // Positions first .. last - 1 whose rows see each other, also later ones, as far as a window
  // reaches back: of a picture. In order; one that reaches into the span ends in it.
  std::vector<std::pair<int32_t, int32_t>> blocks = {};
  // Rows that the span's rows see in causal attention among themselves (AttendLocal), the others
  // are padding; 0: all.
  int32_t visible = 0;
  // Positions of an encoder's tokens, 0 .. encoded - 1, before those of the decoder (KeyPart).
  int32_t encoded = 0;

  // The slot that takes the state after a row, counted from the span's first; -1: none does.
  int32_t row_slot(int32_t row) const {
    const int32_t first = count - 1 - static_cast<int32_t>(row_slots.size());
    return row >= first && row < count - 1 ? row_slots[static_cast<size_t>(row - first)] : -1;
  }
};

// A float matrix for an input of the graph; the caller keeps the data.
struct InputArray {
  const float* data;
  int64_t rows, cols;
};

// What one step runs: any mix of prompt chunks and single tokens, one span after the other.
struct Batch {
  std::vector<Span> spans;
  // [rows] ids; empty where the graph embeds none. -1 - i: row i of the input that the graph
  // inserts (InsertRows).
  std::vector<int32_t> tokens;
  std::vector<int32_t> outputs;  // rows that want a result
  std::map<std::string, InputArray> inputs;
  // [rows, axes] for rope tables with axes; empty: the position in the sequence on all of them.
  std::vector<int32_t> positions;
  int32_t axes = 0;
  // Runs of rows that see each other in ops that name them (AttendLocal), as their counts.
  std::map<std::string, std::vector<int32_t>> segments;
  int32_t grid_width = 0;  // columns of the grid that the tokens form, where they are a picture's

  int64_t rows() const {
    int64_t sum = 0;
    for (const Span& s : spans) sum += s.count;
    return sum;
  }
};

}  // namespace oxibonsai::graph
