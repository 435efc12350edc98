#include "gpu/step.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace oxibonsai::gpu {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Appends numbers and says where.
int64_t append(StepTables* t, const std::vector<int32_t>& numbers) {
  const auto at = static_cast<int64_t>(t->words.size());
  t->words.insert(t->words.end(), numbers.begin(), numbers.end());
  return at;
}

}  // namespace

int64_t rounded_bytes(int64_t values) { return round_up(values) + 2 * round_up(values / 32 * 4); }

RoundedRows rounded_rows(Address memory, int64_t values) {
  const Address scale = memory + round_up(values);
  return {memory, scale, scale + round_up(values / 32 * 4)};
}

RoundedRows Step::rounded(const ValueRef& v) const {
  return rounded_rows(address(v), values_of(v));
}

uint32_t blocks_of(int64_t count, int64_t size) {
  const int64_t blocks = (count + size - 1) / size;
  if (blocks > INT32_MAX)
    throw CapacityError("a step of " + std::to_string(count) + " values is too large for a GPU");
  return static_cast<uint32_t>(blocks);
}

StepTables step_tables(const graph::Batch& batch, const State& state) {
  StepTables t;
  std::vector<int32_t> ends, positions, places, pages, spans;
  t.rows_of_pool.resize(state.pools.size());
  for (const graph::Span& s : batch.spans) {
    const auto first_row = static_cast<int32_t>(ends.size());
    spans.insert(spans.end(), {first_row, s.count, s.first, s.slot});
    t.first_page.push_back(static_cast<int64_t>(pages.size()));
    pages.insert(pages.end(), s.pages.begin(), s.pages.end());
    t.longest = std::max(t.longest, s.first + s.count);
    for (int32_t i = 0; i < s.count; ++i) {
      const int32_t position = s.first + i;
      const auto page = static_cast<size_t>(position / graph::kPagePositions);
      if (static_cast<size_t>(s.pool) < state.pools.size())
        t.rows_of_pool[static_cast<size_t>(s.pool)].push_back(first_row + i);
      ends.push_back(position + 1);
      positions.push_back(position);
      places.push_back(page < s.pages.size() ? s.pages[page] : 0);
      places.push_back(position % graph::kPagePositions);
    }
  }
  std::vector<int32_t> all(ends.size());
  std::iota(all.begin(), all.end(), 0);
  t.outputs = append(&t, batch.outputs);
  t.ends = append(&t, ends);
  t.positions = append(&t, positions);
  t.places = append(&t, places);
  t.pages = append(&t, pages);
  t.spans = append(&t, spans);
  t.all_rows = append(&t, all);
  for (const std::vector<int32_t>& rows : t.rows_of_pool) t.pool_rows.push_back(append(&t, rows));
  return t;
}

// The rows of attend_local, whose keys and values lie in pages of the workspace, span after span.
void add_local(StepTables* t, const graph::Batch& batch) {
  if (!t->first_local_page.empty()) return;
  std::vector<int32_t> ends, positions, places, pages;
  for (const graph::Span& s : batch.spans) {
    const auto first = static_cast<int32_t>(pages.size());
    t->first_local_page.push_back(first);
    for (int32_t i = 0; i < s.count; ++i) {
      if (i % graph::kPagePositions == 0) pages.push_back(first + i / graph::kPagePositions);
      ends.push_back(s.count);
      positions.push_back(i);
      places.push_back(pages.back());
      places.push_back(i % graph::kPagePositions);
    }
    t->longest_local = std::max(t->longest_local, s.count);
  }
  t->local_pages_count = static_cast<int64_t>(pages.size());
  t->local_ends = append(t, ends);
  t->local_positions = append(t, positions);
  t->local_places = append(t, places);
  t->local_pages = append(t, pages);
}

Tiles add_tiles(StepTables* t, const graph::Batch& batch, int pool, int rows) {
  std::vector<int32_t> tiles;
  int32_t first_row = 0;
  for (size_t i = 0; i < batch.spans.size(); ++i) {
    const graph::Span& s = batch.spans[i];
    const bool local = pool < 0;
    if (local || s.pool == pool)
      for (int32_t r = 0; r < s.count; r += rows)
        tiles.insert(tiles.end(),
                     {first_row + r, std::min(rows, s.count - r),
                      static_cast<int32_t>(local ? t->first_local_page[i] : t->first_page[i])});
    first_row += s.count;
  }
  return {append(t, tiles), static_cast<int64_t>(tiles.size() / 3)};
}

}  // namespace oxibonsai::gpu
