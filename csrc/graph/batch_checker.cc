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
    case RowSpace::Kind::kSequences:
      return static_cast<int64_t>(batch.spans.size());
    case RowSpace::Kind::kPixels:
      return batch.rows() * rows.k * rows.k;
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
    one_sequence_ = one_sequence_ || is_any<JoinRows, SplitRows, Modulate, AddGated>(op);
    grid_ = grid_ || is_any<GroupMoments, Conv2d>(op);
    if (const auto* s = std::get_if<SplitRows>(&op))
      joined_.emplace_back(s->first_rows, s->last_rows);
    if (const auto* j = std::get_if<JoinRows>(&op))
      joined_.emplace_back(lowered_.values[static_cast<size_t>(j->a)].rows,
                           lowered_.values[static_cast<size_t>(j->b)].rows);
    if (const auto* a = std::get_if<Attend>(&op)) decodes_ = decodes_ || a->part != KeyPart::kAll;
    if (const auto* a = std::get_if<AttendLocal>(&op)) padding_ = padding_ || a->mask.causal;
    if (const auto* t = std::get_if<RopeTable>(&op)) axes_ = std::max(axes_, t->axis_count());
    if (const auto* i = std::get_if<InsertRows>(&op))
      inserted_ = lowered_.values[static_cast<size_t>(i->rows)].rows.name;
    if (const auto* a = std::get_if<AttendLocal>(&op))
      if (!a->segments.empty()) segments_.insert(a->segments);
  }
}

void BatchChecker::check(const Batch& b, const StateShape& state) const {
  const int64_t rows = b.rows();
  if (rows == 0) throw RequestError("a batch needs at least one row");
  check_spans(b);
  check_inputs(b);
  check_tokens(b);
  check_state(b, state);
  check_positions(b);
  check_segments(b);
  check_picture(b);
  for (const int32_t r : b.outputs)
    if (r < 0 || r >= rows) throw RequestError("an output row is not in the batch");
}

void BatchChecker::check_tokens(const Batch& b) const {
  const int64_t rows = b.rows();
  const bool reads = vocabulary_ >= 0 || !inserted_.empty();
  if (!reads) return;
  if (static_cast<int64_t>(b.tokens.size()) != rows)
    throw RequestError("a batch of " + std::to_string(rows) + " rows needs as many tokens, not " +
                       std::to_string(b.tokens.size()));
  const int64_t inserted = inserted_.empty() ? 0 : b.inputs.at(inserted_).rows;
  for (size_t r = 0; r < b.tokens.size(); ++r) {
    const int64_t token = b.tokens[r];
    const std::string where = " (row " + std::to_string(r) + " of the batch)";
    if (token < 0 && !inserted_.empty() && -1 - token >= inserted)
      throw RequestError("the input " + inserted_ + " has no row " + std::to_string(-1 - token) +
                         where);
    if ((token < 0 && inserted_.empty()) || (vocabulary_ >= 0 && token >= vocabulary_))
      throw RequestError("token id " + std::to_string(token) + " is outside the vocabulary of " +
                         std::to_string(vocabulary_) + where);
  }
}

void BatchChecker::check_spans(const Batch& b) const {
  for (size_t i = 0; i < b.spans.size(); ++i) {
    const Span& s = b.spans[i];
    const int64_t last = static_cast<int64_t>(s.first) + s.count;
    const std::string where = " (span " + std::to_string(i) + " of the batch)";
    if (s.first < 0 || s.count < 1 || last > INT32_MAX)
      throw RequestError("a span needs a first position and at least one row" + where);
    if (positions_ >= 0 && last > positions_)
      throw RequestError("position " + std::to_string(last - 1) + " is outside the table of " +
                         std::to_string(positions_) + where);
    if (s.encoded < 0 || (decodes_ && (s.encoded == 0 || s.encoded > s.first)))
      throw RequestError("a decoder's rows lie behind those of its encoder" + where);
    int32_t end = 0;
    for (const auto& [begin, past] : s.blocks) {
      if (begin < end || past <= begin || (past > s.first && past > last))
        throw RequestError("rows that see each other, positions " + std::to_string(begin) + " to " +
                           std::to_string(past - 1) + ", must be in order and end in the span" +
                           where);
      end = past;
    }
  }
}

void BatchChecker::check_positions(const Batch& b) const {
  if (b.positions.empty()) return;
  if (axes_ == 0) throw RequestError("the graph reads no positions of several axes");
  if (b.axes < axes_)
    throw RequestError("the graph reads positions of " + std::to_string(axes_) +
                       " axes, the batch has " + std::to_string(b.axes));
  if (static_cast<int64_t>(b.positions.size()) != b.rows() * b.axes)
    throw RequestError("a batch of " + std::to_string(b.rows()) +
                       " rows needs positions for each of them");
  for (const int32_t p : b.positions)
    if (p < 0) throw RequestError("a position is negative");
}

// Segments lie within spans, so that no row depends on another sequence.
void BatchChecker::check_segments(const Batch& b) const {
  for (const std::string& name : segments_)
    if (b.segments.count(name) == 0) throw RequestError("the batch has no segments " + name);
  for (const auto& [name, counts] : b.segments) {
    if (segments_.count(name) == 0) throw RequestError("the graph has no segments " + name);
    size_t span = 0;
    int64_t left = b.spans.front().count;
    for (const int32_t count : counts) {
      if (left == 0 && ++span < b.spans.size()) left = b.spans[span].count;
      if (count < 1 || count > left)
        throw RequestError("the segments " + name + " do not divide the spans of the batch");
      left -= count;
    }
    if (left != 0 || span + 1 != b.spans.size())
      throw RequestError("the segments " + name + " do not divide the spans of the batch");
  }
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
      if (s.row_slots.size() >= static_cast<size_t>(s.count))
        throw RequestError("more rows than the span has leave their state in slots" + where);
      std::vector<int32_t> own = s.row_slots;
      own.push_back(s.slot);
      for (const int32_t slot : own) {
        if (slot < 0 || slot >= state.slots)
          throw RequestError("no such slot: " + std::to_string(slot) + " of " +
                             std::to_string(state.slots) + where);
        if (!slots.insert(slot).second)
          throw RequestError("two spans use the slot " + std::to_string(slot) + where);
      }
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

void BatchChecker::check_picture(const Batch& b) const {
  for (const Span& s : b.spans)
    if (s.visible != 0 && (!padding_ || s.visible < 0 || s.visible > s.count))
      throw RequestError(padding_ ? "a span has fewer rows than are visible"
                                  : "the graph has no attention that reads which rows are visible");
  if ((one_sequence_ || grid_) && b.spans.size() != 1)
    throw RequestError("the graph takes one sequence in a step, not " +
                       std::to_string(b.spans.size()));
  if (grid_ && (b.grid_width < 1 || b.rows() % b.grid_width != 0))
    throw RequestError("the batch's tokens form no grid " + std::to_string(b.grid_width) + " wide");
  for (const auto& [first, last] : joined_)
    if (rows_in(first, b) + rows_in(last, b) != b.rows())
      throw RequestError("the inputs " + first.name + " and " + last.name +
                         " have together another number of rows than the batch");
}

void BatchChecker::check_inputs(const Batch& b) const {
  for (const auto& [name, id] : lowered_.inputs) {
    const Value& v = lowered_.values[static_cast<size_t>(id)];
    const auto found = b.inputs.find(name);
    if (found == b.inputs.end()) throw RequestError("the batch has no input " + name);
    // A batch that wants no output has no rows in the space of outputs.
    const int64_t least = v.rows.kind == RowSpace::Kind::kInput ? 1 : 0;
    if (found->second.cols != v.cols || found->second.rows < least)
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
