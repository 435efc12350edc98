#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cpu/kernel_table.h"
#include "cpu/kv_pages.h"
#include "cpu/slots.h"
#include "graph/batch.h"
#include "graph/value.h"

namespace oxibonsai::cpu {

// Where sequences keep their state between two steps. The caller owns it.
struct State {
  std::vector<KvPages*> pools;  // of pages; a span names its own
  Slots* slots = nullptr;
};

// A value as a runner sees it.
struct ValueRef {
  int storage = -1;  // index into Step::memory
  int space = -1;    // index into Step::rows
  int64_t cols = 0;
  graph::ValueType type = graph::ValueType::kF32;
  bool tables = false;  // int8 with the lookup tables that a reader wants
};

// Runs of rows that see each other where nothing is kept.
struct Segments {
  std::vector<int32_t> of_row;
  std::vector<int32_t> first_row, count;  // by segment
};

// Everything that the runners of one running step share.
struct Step {
  const KernelTable* kernels;
  const graph::Batch* batch;
  const State* state;
  int threads;
  std::vector<uint8_t*> memory;  // of storages, then the workspace of each op
  std::vector<int64_t> rows;     // by row space
  // By row of the tokens.
  std::vector<int32_t> positions;
  std::vector<int32_t> span;
  std::vector<int32_t> first_row;  // by span
  std::vector<int32_t> seen_end;   // one past the last position that a row sees: of its block
  std::map<std::string, Segments> segments;  // by name; "": the spans
  int longest = 0;                           // one past the last position of any span

  const graph::Span& span_of(int64_t row) const {
    return batch->spans[static_cast<size_t>(span[static_cast<size_t>(row)])];
  }
  // The pool that holds the pages of a row's sequence.
  const KvPages& pages_of(int64_t row) const {
    return *state->pools[static_cast<size_t>(span_of(row).pool)];
  }
  int64_t rows_of(const ValueRef& v) const { return rows[static_cast<size_t>(v.space)]; }
  float* floats(const ValueRef& v) const {
    return reinterpret_cast<float*>(memory[static_cast<size_t>(v.storage)]);
  }
  float* row(const ValueRef& v, int64_t r) const { return floats(v) + r * v.cols; }
  int32_t* index_row(const ValueRef& v, int64_t r) const {
    return reinterpret_cast<int32_t*>(memory[static_cast<size_t>(v.storage)]) + r * v.cols;
  }
  float* workspace_floats(int index) const {
    return reinterpret_cast<float*>(memory[static_cast<size_t>(index)]);
  }
  // The arrays of an int8 value.
  QuantizedRows quantized(const ValueRef& v) const;
};

}  // namespace oxibonsai::cpu
