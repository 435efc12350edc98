#include "graph/batch_checker.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/check.h"

namespace oxibonsai::graph {
namespace {

// The smaller of a limit and a table's rows; -1 stands for no limit.
int64_t least(int64_t limit, int64_t rows) { return limit < 0 ? rows : std::min(limit, rows); }

}  // namespace

int64_t rows_in(const RowSpace& rows, const Batch& batch) {
  switch (rows.kind) {
    case RowSpace::Kind::kTokens:
      return batch.rows();
    case RowSpace::Kind::kOutputs:
      return static_cast<int64_t>(batch.outputs.size());
    case RowSpace::Kind::kRouted:
      return batch.rows() * rows.k;
    case RowSpace::Kind::kInput:
      return batch.inputs.at(rows.name).rows;
  }
  return 0;
}

BatchChecker::BatchChecker(const LoweredGraph& lowered, const StateSpec& state)
    : lowered_(lowered), state_(state) {
  for (const Op& op : lowered_.ops) {
    if (const auto* e = std::get_if<Embed>(&op))
      vocabulary_ = least(vocabulary_, e->weight->rows());
    if (const auto* e = std::get_if<EmbedPositions>(&op))
      positions_ = least(positions_, e->weight->rows());
  }
}

void BatchChecker::check(const Batch& b, const StateShape& state) const {
  const int64_t rows = b.rows();
  if (rows == 0) throw RequestError("a batch needs at least one row");
  if (vocabulary_ >= 0 && static_cast<int64_t>(b.tokens.size()) != rows)
    throw RequestError("a batch of " + std::to_string(rows) + " rows needs as many tokens, not " +
                       std::to_string(b.tokens.size()));
  for (size_t r = 0; vocabulary_ >= 0 && r < b.tokens.size(); ++r)
    if (b.tokens[r] < 0 || b.tokens[r] >= vocabulary_)
      throw RequestError("token id " + std::to_string(b.tokens[r]) +
                         " is outside the vocabulary of " + std::to_string(vocabulary_) + " (row " +
                         std::to_string(r) + " of the batch)");
  for (size_t i = 0; i < b.spans.size(); ++i) {
    const Span& s = b.spans[i];
    const int64_t last = static_cast<int64_t>(s.first) + s.count;
    const std::string where = " (span " + std::to_string(i) + " of the batch)";
    if (s.first < 0 || s.count < 1 || last > INT32_MAX)
      throw RequestError("a span needs a first position and at least one row" + where);
    if (positions_ >= 0 && last > positions_)
      throw RequestError("position " + std::to_string(last - 1) + " is outside the table of " +
                         std::to_string(positions_) + where);
  }
  check_state(b, state);
  check_inputs(b);
  for (const int32_t r : b.outputs)
    if (r < 0 || r >= rows) throw RequestError("an output row is not in the batch");
}

void BatchChecker::check_state(const Batch& b, const StateShape& state) const {
  if (!state_.paged.empty())
    for (const PoolShape& pool : state.pools)
      if (*pool.layers != state_.paged)
        throw RequestError("the KV cache has another shape than the graph");
  if (!state_.slot.empty() && (state.slot_entries == nullptr || *state.slot_entries != state_.slot))
    throw RequestError("the slots of recurrent state have another shape than the graph");
  std::set<int32_t> slots;
  for (size_t i = 0; i < b.spans.size(); ++i) {
    const Span& s = b.spans[i];
    const std::string where = " (span " + std::to_string(i) + " of the batch)";
    if (!state_.slot.empty()) {
      if (s.slot < 0 || s.slot >= state.slots)
        throw RequestError("no such slot: " + std::to_string(s.slot) + " of " +
                           std::to_string(state.slots) + where);
      if (!slots.insert(s.slot).second)
        throw RequestError("two spans use the slot " + std::to_string(s.slot) + where);
    }
    if (state_.paged.empty()) continue;
    if (s.pool < 0 || static_cast<size_t>(s.pool) >= state.pools.size())
      throw RequestError("no such pool of KV pages: " + std::to_string(s.pool) + " of " +
                         std::to_string(state.pools.size()) + where);
    const int64_t pages = state.pools[static_cast<size_t>(s.pool)].pages;
    for (const int32_t page : s.pages)
      if (page < 0 || page >= pages)
        throw RequestError("no such page: " + std::to_string(page) + " of " +
                           std::to_string(pages) + where);
    const int64_t last = static_cast<int64_t>(s.first) + s.count;
    if (last > static_cast<int64_t>(s.pages.size()) * kPagePositions)
      throw RequestError("position " + std::to_string(last - 1) + " has no page" + where);
  }
}

void BatchChecker::check_inputs(const Batch& b) const {
  for (const auto& [name, id] : lowered_.inputs) {
    const Value& v = lowered_.values[static_cast<size_t>(id)];
    const auto found = b.inputs.find(name);
    if (found == b.inputs.end()) throw RequestError("the batch has no input " + name);
    if (found->second.cols != v.cols || found->second.rows < 1)
      throw RequestError("the input " + name + " needs rows of " + std::to_string(v.cols) +
                         " columns");
    if (found->second.rows != rows_in(v.rows, b))
      throw RequestError("the input " + name + " has " + std::to_string(found->second.rows) +
                         " rows; its row space, " + to_string(v.rows) + ", has " +
                         std::to_string(rows_in(v.rows, b)));
  }
  for (const auto& [name, array] : b.inputs)
    if (std::none_of(lowered_.inputs.begin(), lowered_.inputs.end(),
                     [&, &name = name](const auto& input) { return input.first == name; }))
      throw RequestError("the graph has no input " + name);
}

int64_t BatchChecker::output_rows(size_t output, const Batch& batch) const {
  const ValueId id = lowered_.outputs.at(output).second;
  const RowSpace& rows = lowered_.values[static_cast<size_t>(id)].rows;
  if (rows.kind == RowSpace::Kind::kInput) check_inputs(batch);
  return rows_in(rows, batch);
}

}  // namespace oxibonsai::graph
