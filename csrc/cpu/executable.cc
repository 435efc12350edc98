#include "cpu/executable.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <set>
#include <string>

#include "base/check.h"
#include "base/work_shares.h"
#include "cpu/quantized_rows.h"

namespace oxibonsai::cpu {

using graph::Batch;
using graph::RowSpace;
using graph::Span;
using graph::ValueId;
using graph::ValueType;

namespace {

// Where an op keeps state, as a number that no buffer has; -1: it keeps none.
template <class T>
int state_written(const T&) {
  return -1;
}
int state_written(const graph::StoreKv& op) { return 2 * op.layer; }
int state_written(const graph::Conv1d& op) { return 2 * op.slot + 1; }
int state_written(const graph::GatedDelta& op) { return 2 * op.slot + 1; }
int state_written(const graph::Mamba2Scan& op) { return 2 * op.slot + 1; }
int state_written(const graph::MambaScan& op) { return 2 * op.slot + 1; }

// The smaller of a limit and a table's rows; -1 stands for no limit.
int64_t least(int64_t limit, int64_t rows) { return limit < 0 ? rows : std::min(limit, rows); }

}  // namespace

QuantizedRows Step::quantized(const ValueRef& v) const {
  return quantized_rows(memory[static_cast<size_t>(v.buffer)], rows_of(v), v.cols, v.tables);
}

Executable::Executable(const CpuDevice& device, const graph::Graph& graph)
    : table_(device.table()),
      pool_(device.pool()),
      lowered_(graph::lower(graph)),
      state_(graph.state()) {
  if (lowered_.outputs.empty()) throw RequestError("a graph needs at least one output");
  for (const auto& [name, id] : lowered_.outputs)
    output_columns_.emplace_back(name, lowered_.values[static_cast<size_t>(id)].cols);
  for (const graph::Buffer& b : lowered_.buffers) space_of_.push_back(space(b.rows));
  tables_.resize(lowered_.buffers.size());
  for (const graph::Op& op : lowered_.ops) {
    if (const auto* e = std::get_if<graph::Embed>(&op))
      vocabulary_ = least(vocabulary_, e->weight->rows());
    if (const auto* e = std::get_if<graph::EmbedPositions>(&op))
      positions_ = least(positions_, e->weight->rows());
    for (const graph::WeightPtr& w : graph::matrices_of(op)) {
      const auto buffer = lowered_.buffer_of[static_cast<size_t>(graph::inputs_of(op).front())];
      if (reads_tables(table_.linear[static_cast<int>(w->type())]))
        tables_[static_cast<size_t>(buffer)] = true;
    }
  }
  make_runners(device);
  make_stages();
  memory_.resize(lowered_.buffers.size());
}

int Executable::space(const RowSpace& rows) {
  const auto found = std::find(spaces_.begin(), spaces_.end(), rows);
  if (found != spaces_.end()) return static_cast<int>(found - spaces_.begin());
  spaces_.push_back(rows);
  return static_cast<int>(spaces_.size()) - 1;
}

ValueRef Executable::ref(ValueId id) const {
  const graph::Value& v = lowered_.values[static_cast<size_t>(id)];
  const int buffer = lowered_.buffer_of[static_cast<size_t>(id)];
  const auto b = static_cast<size_t>(buffer);
  return {buffer, space_of_[b], v.cols, v.type, tables_[b]};
}

void Executable::make_runners(const CpuDevice& device) {
  const RunnerContext context{
      &state_,
      [this](ValueId id) { return ref(id); },
      [&device](const graph::WeightPtr& w) {
        PackedWeightPtr packed = device.packed(w);
        if (packed == nullptr) throw RequestError(w->name() + " is not packed for this device");
        return packed;
      },
  };
  for (const graph::Op& op : lowered_.ops)
    runners_.push_back(std::visit([&](const auto& o) { return make_runner(o, context); }, op));
}

// An op's first phase joins the stage before it where that consists of first phases too, and
// neither reads nor writes what the other writes.
void Executable::make_stages() {
  std::set<int> read, written, states;
  bool first_phases = false;
  for (size_t i = 0; i < lowered_.ops.size(); ++i) {
    const graph::Op& op = lowered_.ops[i];
    std::set<int> reads, writes;
    for (const ValueId id : graph::inputs_of(op))
      reads.insert(lowered_.buffer_of[static_cast<size_t>(id)]);
    for (const ValueId id : graph::outputs_of(op))
      writes.insert(lowered_.buffer_of[static_cast<size_t>(id)]);
    const int state = std::visit([](const auto& o) { return state_written(o); }, op);
    const auto meets = [](const std::set<int>& a, const std::set<int>& b) {
      return std::any_of(a.begin(), a.end(), [&](int x) { return b.count(x) > 0; });
    };
    const bool joins = first_phases && !meets(writes, read) && !meets(writes, written) &&
                       !meets(reads, written) && (state < 0 || states.count(state) == 0);
    if (!joins) {
      stages_.emplace_back();
      read.clear();
      written.clear();
      states.clear();
    }
    stages_.back().push_back({runners_[i].get(), 0});
    read.insert(reads.begin(), reads.end());
    written.insert(writes.begin(), writes.end());
    if (state >= 0) states.insert(state);
    first_phases = runners_[i]->phases() == 1;
    for (int phase = 1; phase < runners_[i]->phases(); ++phase)
      stages_.push_back({{runners_[i].get(), phase}});
  }
}

int64_t Executable::rows_in(const RowSpace& rows, const Batch& batch) const {
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

int64_t Executable::output_rows(size_t output, const Batch& batch) const {
  const ValueId id = lowered_.outputs.at(output).second;
  const RowSpace& rows = lowered_.values[static_cast<size_t>(id)].rows;
  if (rows.kind == RowSpace::Kind::kInput) check_inputs(batch);
  return rows_in(rows, batch);
}

void Executable::check(const Batch& b, const State& state) const {
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

void Executable::check_state(const Batch& b, const State& state) const {
  if (!state_.paged.empty())
    for (const KvPages* pool : state.pools)
      if (pool->layers() != state_.paged)
        throw RequestError("the KV cache has another shape than the graph");
  if (!state_.slot.empty() && (state.slots == nullptr || state.slots->entries() != state_.slot))
    throw RequestError("the slots of recurrent state have another shape than the graph");
  std::set<int32_t> slots;
  for (size_t i = 0; i < b.spans.size(); ++i) {
    const Span& s = b.spans[i];
    const std::string where = " (span " + std::to_string(i) + " of the batch)";
    if (!state_.slot.empty()) {
      if (s.slot < 0 || s.slot >= state.slots->slots())
        throw RequestError("no such slot: " + std::to_string(s.slot) + " of " +
                           std::to_string(state.slots->slots()) + where);
      if (!slots.insert(s.slot).second)
        throw RequestError("two spans use the slot " + std::to_string(s.slot) + where);
    }
    if (state_.paged.empty()) continue;
    if (s.pool < 0 || static_cast<size_t>(s.pool) >= state.pools.size())
      throw RequestError("no such pool of KV pages: " + std::to_string(s.pool) + " of " +
                         std::to_string(state.pools.size()) + where);
    const int64_t pages = state.pools[static_cast<size_t>(s.pool)]->pages();
    for (const int32_t page : s.pages)
      if (page < 0 || page >= pages)
        throw RequestError("no such page: " + std::to_string(page) + " of " +
                           std::to_string(pages) + where);
    const int64_t last = static_cast<int64_t>(s.first) + s.count;
    if (last > static_cast<int64_t>(s.pages.size()) * kPagePositions)
      throw RequestError("position " + std::to_string(last - 1) + " has no page" + where);
  }
}

void Executable::check_inputs(const Batch& b) const {
  for (const auto& [name, id] : lowered_.inputs) {
    const graph::Value& v = lowered_.values[static_cast<size_t>(id)];
    const auto found = b.inputs.find(name);
    if (found == b.inputs.end()) throw RequestError("the batch has no input " + name);
    if (found->second.cols != v.cols || found->second.rows < 1)
      throw RequestError("the input " + name + " needs rows of " + std::to_string(v.cols) +
                         " columns");
    if (found->second.rows != rows_in(v.rows, b))
      throw RequestError("the input " + name + " has " + std::to_string(found->second.rows) +
                         " rows; its row space, " + graph::to_string(v.rows) + ", has " +
                         std::to_string(rows_in(v.rows, b)));
  }
  for (const auto& [name, array] : b.inputs)
    if (std::none_of(lowered_.inputs.begin(), lowered_.inputs.end(),
                     [&, &name = name](const auto& input) { return input.first == name; }))
      throw RequestError("the graph has no input " + name);
}

int64_t Executable::bytes_of(const graph::Buffer& b, bool tables, int64_t rows) const {
  if (b.type == ValueType::kInt8) return quantized_bytes(rows, b.cols, tables);
  static_assert(sizeof(float) == sizeof(int32_t));
  return b.cols * rows * static_cast<int64_t>(sizeof(float));
}

Step Executable::make_step(const Batch& batch, const State& state,
                           const std::vector<float*>& results) {
  Step step{};
  step.kernels = &table_;
  step.batch = &batch;
  step.state = &state;
  step.threads = pool_->size();
  for (const RowSpace& rows : spaces_) step.rows.push_back(rows_in(rows, batch));
  for (size_t i = 0; i < batch.spans.size(); ++i) {
    const Span& s = batch.spans[i];
    step.longest = std::max(step.longest, s.first + s.count);
    step.first_row.push_back(static_cast<int32_t>(step.span.size()));
    for (int32_t p = 0; p < s.count; ++p) {
      step.positions.push_back(s.first + p);
      step.span.push_back(static_cast<int32_t>(i));
    }
  }
  step.memory.resize(memory_.size());
  for (size_t i = 0; i < lowered_.outputs.size(); ++i) {
    const ValueId id = lowered_.outputs[i].second;
    step.memory[static_cast<size_t>(lowered_.buffer_of[static_cast<size_t>(id)])] =
        reinterpret_cast<uint8_t*>(results[i]);
  }
  for (const auto& [name, id] : lowered_.inputs) {
    // Read only: no op writes the buffer of an input.
    auto* data = const_cast<float*>(batch.inputs.at(name).data);
    step.memory[static_cast<size_t>(lowered_.buffer_of[static_cast<size_t>(id)])] =
        reinterpret_cast<uint8_t*>(data);
  }
  for (size_t i = 0; i < memory_.size(); ++i) {
    if (step.memory[i] != nullptr) continue;
    const int64_t rows = step.rows[static_cast<size_t>(space_of_[i])];
    const auto bytes = static_cast<size_t>(bytes_of(lowered_.buffers[i], tables_[i], rows));
    if (memory_[i].size() < bytes) memory_[i] = AlignedBuffer(bytes);
    step.memory[i] = memory_[i].data();
  }
  int64_t workspace = 0;
  for (const RunnerPtr& r : runners_) workspace = std::max(workspace, r->workspace_bytes(step));
  if (workspace_.size() < static_cast<size_t>(workspace))
    workspace_ = AlignedBuffer(static_cast<size_t>(workspace));
  step.workspace = workspace_.data();
  return step;
}

void Executable::run(const Batch& batch, const State& state, const std::vector<float*>& results) {
  const std::lock_guard<std::mutex> one_at_a_time(mutex_);
  check(batch, state);
  const Step step = make_step(batch, state, results);
  WorkShares shares(pool_->size());
  Barrier barrier(pool_->size());
  std::mutex error_mutex;
  std::exception_ptr error;  // a thread that fails still meets the others at every barrier
  const auto work = [&](int thread) {
    unsigned phases = 0;
    std::vector<int64_t> counts;  // items of each part of a stage
    for (const Stage& stage : stages_) {
      counts.clear();
      for (const Part& part : stage) counts.push_back(part.runner->items(step, part.phase));
      const int64_t count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      if (count == 0) continue;  // for all threads alike
      try {
        for (int64_t item; (item = shares.next(phases, thread, count)) >= 0;) {
          size_t part = 0;
          for (; item >= counts[part]; ++part) item -= counts[part];
          stage[part].runner->run(step, stage[part].phase, item);
        }
      } catch (...) {
        const std::lock_guard<std::mutex> lock(error_mutex);
        error = std::current_exception();
      }
      shares.prepare_next(phases, thread);
      ++phases;
      barrier.wait();
    }
  };
  pool_->run(work);
  if (error) std::rethrow_exception(error);
}

}  // namespace oxibonsai::cpu
