#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "gpu/backend.h"
#include "gpu/launch_queue.h"
#include "gpu/state.h"
#include "graph/attention.h"
#include "graph/batch.h"
#include "graph/value.h"

namespace oxibonsai::gpu {

// Which rows see each other in attend_local.
struct LocalKey {
  std::string segments;  // name; empty: those of a span
  graph::LocalMask mask = {};
  bool operator<(const LocalKey& o) const {
    return std::tie(segments, mask) < std::tie(o.segments, o.mask);
  }
};

// The rows of attend_local by segment, and its pages, which are the op's own.
struct LocalTables {
  std::vector<int32_t> counts;      // rows, by segment
  std::vector<int64_t> first_page;  // by segment
  std::vector<int64_t> views;       // by range of the mask
  int64_t places = 0, pages = 0;
  int64_t page_count = 0;
  int32_t longest = 0;  // the most rows of a segment
};

// Where the numbers of a step lie in one array on the device, as offsets into it.
struct StepTables {
  std::vector<int32_t> words;
  int64_t outputs = 0;  // [outputs]: rows that want a result
  int64_t tokens = 0;   // [rows], where the batch has tokens
  // [rows, 3]: one past the row's position, one past the last that it sees, of its block or of the
  // encoder's tokens, and the first that it may see.
  std::map<graph::KeyPart, int64_t> views;
  int64_t places = 0;  // [rows, 2]: the page of a row's position, its place there
  // Of all spans, one after the other. The last of all, since their number alone changes from one
  // step of decoding to the next: what lies before them keeps its place.
  int64_t pages = 0;
  int64_t row_slots = 0;  // [rows]: the slot that takes the state after a row, or -1
  int64_t spans = 0;      // [spans, 4]: first row, rows, first position, slot
  std::map<LocalKey, LocalTables> local;
  std::vector<int64_t> first_page;                 // by span: of its pages
  std::vector<std::vector<int32_t>> rows_of_pool;  // rows whose sequence keeps its pages there
  std::vector<int64_t> pool_rows;                  // by pool: of rows_of_pool
  int64_t all_rows = 0;                            // 0, 1, 2 ...
  int32_t longest = 0;                             // one past the last position of any span
};

// Runs of rows of one sequence that a block of threads of attention takes
// (gpu/kernels/attention.h).
struct Tiles {
  int64_t at;  // in StepTables::words
  int64_t count;
};

// What tiles are made for: a pool of pages, or segments of attend_local, and rows of a tile.
struct TileKey {
  int pool;  // -1: segments
  LocalKey local;
  int rows;
  bool operator<(const TileKey& o) const {
    return std::tie(pool, local, rows) < std::tie(o.pool, o.local, o.rows);
  }
};

// A value as a runner sees it: a buffer of the step.
struct ValueRef {
  int buffer = -1;
  int space = -1;  // index into Step::rows
  int64_t cols = 0;
  graph::ValueType type = graph::ValueType::kF32;
};

// The arrays of an int8 value (gpu/kernels/rounding.h).
struct RoundedRows {
  Address q, scale, sums;
};

// Everything that the runners of one running step share.
struct Step {
  Backend* backend;
  LaunchQueue* launches;
  const graph::Batch* batch;
  const State* state;
  std::vector<Address> memory;  // by buffer
  std::vector<int64_t> rows;    // by row space
  StepTables tables;
  std::map<TileKey, Tiles> tiles;  // of attention
  // Panels of head_linear, in the tables: by heads and rows.
  std::map<std::pair<int64_t, int64_t>, int64_t> head_panels;
  Address words;      // the tables on the device
  Address workspace;  // what Runner::workspace_bytes() asked for

  int64_t rows_of(const ValueRef& v) const { return rows[static_cast<size_t>(v.space)]; }
  int64_t values_of(const ValueRef& v) const { return rows_of(v) * v.cols; }
  // Null where the value has no buffer.
  Address address(const ValueRef& v) const {
    return v.buffer < 0 ? Address{} : memory[static_cast<size_t>(v.buffer)];
  }
  Address table(int64_t at) const { return words + at * static_cast<int64_t>(sizeof(int32_t)); }
  RoundedRows rounded(const ValueRef& v) const;

  // Transfers and launches take effect in the order of these calls, but launches wait for the next
  // transfer or for submit().
  void upload(const void* from, Address to, int64_t bytes) const;
  void download(Address from, void* to, int64_t bytes) const;
  void copy(Address from, Address to, int64_t bytes) const;
  void submit() const { launches->submit(*backend); }
  // `threads` for each block; buffers in the order of the kernel's parameters.
  template <class Args, size_t kCount>
  void launch(const char* kernel, const Grid& grid, uint32_t threads, const Args& args,
              const std::array<Address, kCount>& buffers) const {
    launches->add(
        {kernel, grid, threads, &args, sizeof args, buffers.data(), static_cast<int>(kCount)});
  }
};

// Bytes of an int8 value; where its arrays begin.
int64_t rounded_bytes(int64_t values);
RoundedRows rounded_rows(Address memory, int64_t values);

// Blocks of `size` that hold `count`. CapacityError where a launch can't have as many.
uint32_t blocks_of(int64_t count, int64_t size);

// Fills the tables of a step but for its pages, and what its runners ask for beside: what rows see
// of a part of the positions; the rows of attend_local, whose keys and values lie in pages of the
// workspace, segment after segment; and tiles, which may be of those. Behind all that come the
// pages.
StepTables step_tables(const graph::Batch& batch, const State& state);
void add_views(StepTables* tables, const graph::Batch& batch, graph::KeyPart part);
void add_local(StepTables* tables, const graph::Batch& batch, const LocalKey& key);
Tiles add_tiles(StepTables* tables, const graph::Batch& batch, const TileKey& key);
void add_pages(StepTables* tables, const graph::Batch& batch);

}  // namespace oxibonsai::gpu
