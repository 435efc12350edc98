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

void Step::upload(const void* from, Address to, int64_t bytes) const {
  submit();
  backend->upload(from, to, bytes);
}

void Step::download(Address from, void* to, int64_t bytes) const {
  submit();
  backend->download(from, to, bytes);
}

void Step::copy(Address from, Address to, int64_t bytes) const {
  submit();
  backend->copy(from, to, bytes);
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
  std::vector<int32_t> places, spans, row_slots;
  int64_t pages = 0;
  t.rows_of_pool.resize(state.pools.size());
  for (const graph::Span& s : batch.spans) {
    const auto first_row = static_cast<int32_t>(places.size() / 2);
    spans.insert(spans.end(), {first_row, s.count, s.first, s.slot});
    t.first_page.push_back(pages);
    pages += static_cast<int64_t>(s.pages.size());
    t.longest = std::max(t.longest, s.first + s.count);
    for (int32_t i = 0; i < s.count; ++i) {
      const int32_t position = s.first + i;
      const auto page = static_cast<size_t>(position / graph::kPagePositions);
      if (static_cast<size_t>(s.pool) < state.pools.size())
        t.rows_of_pool[static_cast<size_t>(s.pool)].push_back(first_row + i);
      places.push_back(page < s.pages.size() ? s.pages[page] : 0);
      places.push_back(position % graph::kPagePositions);
      row_slots.push_back(s.row_slot(i));
    }
  }
  std::vector<int32_t> all(places.size() / 2);
  std::iota(all.begin(), all.end(), 0);
  t.outputs = append(&t, batch.outputs);
  t.tokens = append(&t, batch.tokens);
  t.places = append(&t, places);
  t.row_slots = append(&t, row_slots);
  t.spans = append(&t, spans);
  t.all_rows = append(&t, all);
  for (const std::vector<int32_t>& rows : t.rows_of_pool) t.pool_rows.push_back(append(&t, rows));
  return t;
}

void add_views(StepTables* t, const graph::Batch& batch, graph::KeyPart part) {
  if (t->views.count(part) > 0) return;
  std::vector<int32_t> views;
  for (const graph::Span& s : batch.spans) {
    auto block = s.blocks.begin();
    for (int32_t position = s.first; position < s.first + s.count; ++position) {
      while (block != s.blocks.end() && block->second <= position) ++block;
      const bool inside = block != s.blocks.end() && block->first <= position;
      const int32_t end = inside ? block->second : position + 1;
      const bool encoded = part == graph::KeyPart::kEncoded;
      views.insert(views.end(), {position + 1, encoded ? s.encoded : end,
                                 part == graph::KeyPart::kOwn ? s.encoded : 0});
    }
  }
  t->views[part] = append(t, views);
}

void add_local(StepTables* t, const graph::Batch& batch, const LocalKey& key) {
  if (t->local.count(key) > 0) return;
  LocalTables& local = t->local[key];
  if (key.segments.empty())
    for (const graph::Span& s : batch.spans) local.counts.push_back(s.count);
  else
    local.counts = batch.segments.at(key.segments);
  std::vector<std::vector<int32_t>> views(static_cast<size_t>(key.mask.ranges()));
  std::vector<int32_t> places, pages;
  for (size_t segment = 0; segment < local.counts.size(); ++segment) {
    const int32_t count = local.counts[segment];
    // Causal attention has spans for segments.
    const int32_t visible = key.mask.causal ? batch.spans[segment].visible : 0;
    const auto first = static_cast<int32_t>(pages.size());
    local.first_page.push_back(first);
    for (int32_t i = 0; i < count; ++i) {
      if (i % graph::kPagePositions == 0) pages.push_back(first + i / graph::kPagePositions);
      for (size_t range = 0; range < views.size(); ++range) {
        const graph::KeyRange seen = key.mask.range(i, count, visible, static_cast<int>(range));
        views[range].insert(views[range].end(), {i + 1, seen.end, seen.begin});
      }
      places.push_back(pages.back());
      places.push_back(i % graph::kPagePositions);
    }
    local.longest = std::max(local.longest, count);
  }
  local.page_count = static_cast<int64_t>(pages.size());
  for (const std::vector<int32_t>& of_range : views) local.views.push_back(append(t, of_range));
  local.places = append(t, places);
  local.pages = append(t, pages);
}

Tiles add_tiles(StepTables* t, const graph::Batch& batch, const TileKey& key) {
  std::vector<int32_t> tiles;
  int32_t first_row = 0;
  const auto add_run = [&](int32_t count, int64_t first_page) {
    for (int32_t r = 0; r < count; r += key.rows)
      tiles.insert(tiles.end(), {first_row + r, std::min(key.rows, count - r),
                                 static_cast<int32_t>(first_page)});
  };
  if (key.pool < 0) {
    const LocalTables& local = t->local.at(key.local);
    for (size_t i = 0; i < local.counts.size(); ++i) {
      add_run(local.counts[i], local.first_page[i]);
      first_row += local.counts[i];
    }
  } else {
    for (size_t i = 0; i < batch.spans.size(); ++i) {
      if (batch.spans[i].pool == key.pool) add_run(batch.spans[i].count, t->first_page[i]);
      first_row += batch.spans[i].count;
    }
  }
  return {append(t, tiles), static_cast<int64_t>(tiles.size() / 3)};
}

void add_pages(StepTables* t, const graph::Batch& batch) {
  std::vector<int32_t> pages;
  for (const graph::Span& s : batch.spans)
    pages.insert(pages.end(), s.pages.begin(), s.pages.end());
  t->pages = append(t, pages);
}

}  // namespace oxibonsai::gpu
