#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "graph/batch.h"
#include "graph/lowering.h"

namespace oxibonsai::graph {

// What a step is given to keep state in, as far as a check looks at it.
struct PoolShape {
  const std::vector<PagedLayer>* layers;
  int64_t pages;
};
struct StateShape {
  std::vector<PoolShape> pools;
  const std::vector<int64_t>* slot_entries = nullptr;  // null: no slots
  int64_t slots = 0;
};

// Of a device's own State: its pools of pages, and its slots or null.
template <class State>
StateShape shape_of(const State& state) {
  StateShape shape;
  for (const auto* pool : state.pools) shape.pools.push_back({&pool->layers(), pool->pages()});
  if (state.slots != nullptr) {
    shape.slot_entries = &state.slots->entries();
    shape.slots = state.slots->slots();
  }
  return shape;
}

// How many rows a row space has in a step. Of an input, which the batch must have.
int64_t rows_in(const RowSpace& rows, const Batch& batch);

// Whether a batch fits a graph and its state: RequestError where not. A device runs nothing else.
class BatchChecker {
 public:
  // Both must outlive it.
  BatchChecker(const LoweredGraph& lowered, const StateSpec& state);

  void check(const Batch& batch, const StateShape& state) const;
  // Rows of an output; of one with the rows of an input, the batch's inputs are checked first.
  int64_t output_rows(size_t output, const Batch& batch) const;

 private:
  void check_inputs(const Batch& batch) const;
  void check_tokens(const Batch& batch) const;
  void check_spans(const Batch& batch) const;
  void check_state(const Batch& batch, const StateShape& state) const;
  void check_picture(const Batch& batch) const;
  void check_positions(const Batch& batch) const;
  void check_segments(const Batch& batch) const;

  const LoweredGraph& lowered_;
  const StateSpec& state_;
  int64_t vocabulary_ = -1;  // of the smallest token table; -1: no tokens are embedded
  int64_t positions_ = -1;   // of the smallest table of positions; -1: none
  // Ops that take one sequence in a step, its tokens a grid, or those of two inputs.
  bool one_sequence_ = false;
  bool grid_ = false;
  std::vector<std::pair<RowSpace, RowSpace>> joined_;
  bool padding_ = false;  // Span::visible is read
  int32_t axes_ = 0;      // of positions that rope reads
  std::string inserted_;  // the input whose rows are inserted; empty: none
  std::set<std::string> segments_;
  bool decodes_ = false;  // attends to what an encoder has stored
};

}  // namespace oxibonsai::graph
