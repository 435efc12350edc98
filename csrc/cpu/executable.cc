#include "cpu/executable.h"

#include <algorithm>
#include <climits>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/memory_size.h"
#include "cpu/quantized_rows.h"
#include "graph/tables.h"

namespace oxibonsai::cpu {

using graph::Batch;
using graph::RowSpace;
using graph::Span;
using graph::ValueId;
using graph::ValueType;

namespace {

// Where an op keeps state, as a number that no buffer has; -1: it keeps none.
template <class T>
int state_written([[maybe_unused]] const T& op) {
  if constexpr (graph::kUsesSlot<T>) return 2 * op.slot + 1;
  return -1;
}
int state_written(const graph::StoreKv& op) { return 2 * op.layer; }

// Of a step's memory that comes from the system.
constexpr size_t kMappedBytes = 4 << 20;
// Of a step's memory that is not kept between the steps of a graph without state.
constexpr size_t kLargeBytes = 16 << 20;

// By value: the last op that reads it; null where it is an input or a result, which are the
// caller's.
std::vector<const graph::Op*> last_readers(const graph::LoweredGraph& g) {
  std::vector<const graph::Op*> last(g.values.size());
  for (const graph::Op& op : g.ops)
    for (const ValueId id : graph::inputs_of(op)) last[static_cast<size_t>(id)] = &op;
  for (const auto* given : {&g.inputs, &g.outputs})
    for (const auto& [name, id] : *given) last[static_cast<size_t>(id)] = nullptr;
  return last;
}

void add_segment(Segments* segments, int32_t count) {
  segments->first_row.push_back(static_cast<int32_t>(segments->of_row.size()));
  segments->of_row.insert(segments->of_row.end(), static_cast<size_t>(count),
                          static_cast<int32_t>(segments->count.size()));
  segments->count.push_back(count);
}

}  // namespace

uint8_t* StepBuffer::with_room(size_t bytes) {
  if (size_ < bytes) {
    *this = StepBuffer();
    if (bytes < kMappedBytes)
      small_ = AlignedBuffer(bytes);
    else
      large_ = std::make_unique<HugeBuffer>(bytes);
    size_ = bytes;
  }
  return large_ != nullptr ? large_->data() : small_.data();
}

QuantizedRows Step::quantized(const ValueRef& v) const {
  return quantized_rows(memory[static_cast<size_t>(v.storage)], rows_of(v), v.cols, v.tables);
}

Executable::Executable(const CpuDevice& device, const graph::Graph& graph)
    : table_(device.table()),
      pool_(device.pool()),
      profiler_(device.profiler()),
      lowered_(graph::lower(graph)),
      state_(graph.state()),
      checker_(lowered_, state_),
      active_threads_(pool_->size()) {
  make_storages();
  make_runners(device);
  make_stages();
}

// A value gets its own storage, unless its op replaces one that it reads: lowering lets it, or it
// is local attention, which writes the result of a query where the query was.
void Executable::make_storages() {
  const auto buffer_of = [this](ValueId id) { return lowered_.buffer_of[static_cast<size_t>(id)]; };
  const std::vector<const graph::Op*> last_reader = last_readers(lowered_);
  storage_of_.assign(lowered_.values.size(), -1);
  for (const graph::Op& op : lowered_.ops) {
    const std::vector<ValueId> read = graph::inputs_of(op);
    const auto replaces = [&](ValueId old, ValueId made) {
      if (buffer_of(old) == buffer_of(made)) return true;
      const auto* local = std::get_if<graph::AttendLocal>(&op);
      return local != nullptr && old == local->q && old != local->k && old != local->v &&
             last_reader[static_cast<size_t>(old)] == &op;
    };
    for (const ValueId id : graph::outputs_of(op)) {
      const auto old =
          std::find_if(read.begin(), read.end(), [&](ValueId r) { return replaces(r, id); });
      if (old != read.end()) {
        storage_of_[static_cast<size_t>(id)] = storage_of(*old);
        continue;
      }
      const graph::Value& v = lowered_.values[static_cast<size_t>(id)];
      const int space = lowered_.space_of[static_cast<size_t>(buffer_of(id))];
      storage_of_[static_cast<size_t>(id)] = static_cast<int>(storages_.size());
      storages_.push_back({space, v.cols, v.type, false, false});
    }
  }
  for (const auto* given : {&lowered_.inputs, &lowered_.outputs})
    for (const auto& [name, id] : *given)
      storages_[static_cast<size_t>(storage_of(id))].given = true;
  for (const graph::Op& op : lowered_.ops) {
    for (const graph::WeightPtr& w : graph::matrices_of(op)) {
      if (reads_tables(table_.linear[static_cast<int>(w->type())]))
        storages_[static_cast<size_t>(storage_of(graph::inputs_of(op).front()))].tables = true;
    }
  }
}

ValueRef Executable::ref(ValueId id) const {
  const graph::Value& v = lowered_.values[static_cast<size_t>(id)];
  const int storage = storage_of(id);
  const Storage& s = storages_[static_cast<size_t>(storage)];
  return {storage, s.space, v.cols, v.type, s.tables};
}

void Executable::make_runners(const CpuDevice& device) {
  RunnerContext context{
      &state_,
      [this](ValueId id) { return ref(id); },
      [&device, this](const graph::WeightPtr& w) {
        PackedWeightPtr packed = device.packed(w);
        if (packed == nullptr) throw RequestError(w->name() + " is not packed for this device");
        LinearArgs args{};
        packed->bind(0, &args);
        files_.add(args.weight);  // used where it is, or packed by an earlier process
        return packed;
      },
      static_cast<int>(storages_.size()),
  };
  for (const graph::Op& op : lowered_.ops) {
    runners_.push_back(op.visit([&](const auto& o) { return make_runner(o, context); }));
    ++context.workspace;
  }
  for (const graph::WeightPtr& table : graph::tables_of(lowered_)) files_.add(table->data());
}

// An op's first phase joins the stage before it where that consists of first phases too, and
// neither reads nor writes what the other writes.
void Executable::make_stages() {
  std::set<int> read, written, states;
  bool first_phases = false;
  lifetimes_.assign(storages_.size(), {INT_MAX, -1});
  for (size_t i = 0; i < lowered_.ops.size(); ++i) {
    const graph::Op& op = lowered_.ops[i];
    std::set<int> reads, writes;
    for (const ValueId id : graph::inputs_of(op)) reads.insert(storage_of(id));
    for (const ValueId id : graph::outputs_of(op)) writes.insert(storage_of(id));
    const int state = op.visit([](const auto& o) { return state_written(o); });
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
    Lifetime own{static_cast<int>(stages_.size()) - 1, 0};
    stages_.back().push_back({runners_[i].get(), i, 0});
    read.insert(reads.begin(), reads.end());
    written.insert(writes.begin(), writes.end());
    if (state >= 0) states.insert(state);
    first_phases = runners_[i]->phases() == 1;
    for (int phase = 1; phase < runners_[i]->phases(); ++phase)
      stages_.push_back({{runners_[i].get(), i, phase}});
    own.last = static_cast<int>(stages_.size()) - 1;
    for (const auto* touched : {&reads, &writes}) {
      for (const int storage : *touched) {
        Lifetime& whole = lifetimes_[static_cast<size_t>(storage)];
        whole = {std::min(whole.first, own.first), own.last};
      }
    }
    lifetimes_.push_back(own);  // of the workspace
  }
}

int64_t Executable::bytes_of(const Storage& s, int64_t rows) const {
  if (s.given) return 0;
  if (s.type == ValueType::kInt8) return quantized_bytes(rows, s.cols, s.tables);
  static_assert(sizeof(float) == sizeof(int32_t));
  return s.cols * rows * static_cast<int64_t>(sizeof(float));
}

// Bytes of each storage, then of each workspace.
std::vector<int64_t> Executable::sizes(const Step& step) const {
  std::vector<int64_t> bytes;
  for (const Storage& s : storages_)
    bytes.push_back(bytes_of(s, step.rows[static_cast<size_t>(s.space)]));
  for (const RunnerPtr& r : runners_) bytes.push_back(r->workspace_bytes(step));
  return bytes;
}

int64_t Executable::step_bytes(const Batch& batch, const State& state) const {
  checker_.check(batch, graph::shape_of(state));
  return plan_memory(lifetimes_, sizes(measured_step(batch, state))).bytes;
}

int64_t Executable::table_bytes() const {
  int64_t total = 0;
  for (const graph::WeightPtr& table : graph::tables_of(lowered_)) total += table->bytes();
  return total;
}

// Gives each storage and workspace its place. Steps of the same sizes have the same places.
void Executable::place_memory(Step* step) {
  std::vector<int64_t> bytes = sizes(*step);
  if (bytes != planned_) {
    plan_ = plan_memory(lifetimes_, bytes);
    planned_ = std::move(bytes);
  }
  uint8_t* begin = memory_.with_room(memory_size(plan_.bytes));
  step->memory.resize(lifetimes_.size());
  for (size_t i = 0; i < lifetimes_.size(); ++i)
    if (planned_[i] > 0) step->memory[i] = begin + plan_.offsets[i];
}

// A step without memory.
Step Executable::measured_step(const Batch& batch, const State& state) const {
  Step step{};
  step.kernels = &table_;
  step.batch = &batch;
  step.state = &state;
  step.threads = pool_->size();
  for (const RowSpace& rows : lowered_.spaces) step.rows.push_back(graph::rows_in(rows, batch));
  for (size_t i = 0; i < batch.spans.size(); ++i) {
    const Span& s = batch.spans[i];
    step.longest = std::max(step.longest, s.first + s.count);
    step.first_row.push_back(static_cast<int32_t>(step.span.size()));
    auto block = s.blocks.begin();
    for (int32_t p = s.first; p < s.first + s.count; ++p) {
      while (block != s.blocks.end() && block->second <= p) ++block;
      const bool inside = block != s.blocks.end() && block->first <= p;
      step.positions.push_back(p);
      step.span.push_back(static_cast<int32_t>(i));
      step.seen_end.push_back(inside ? block->second : p + 1);
    }
  }
  Segments& spans = step.segments[""];
  for (const Span& s : batch.spans) add_segment(&spans, s.count);
  for (const auto& [name, counts] : batch.segments)
    for (const int32_t count : counts) add_segment(&step.segments[name], count);
  return step;
}

Step Executable::make_step(const Batch& batch, const State& state,
                           const std::vector<float*>& results) {
  Step step = measured_step(batch, state);
  place_memory(&step);
  const auto give = [&](ValueId id, float* data) {
    step.memory[static_cast<size_t>(storage_of(id))] = reinterpret_cast<uint8_t*>(data);
  };
  for (size_t i = 0; i < lowered_.outputs.size(); ++i) give(lowered_.outputs[i].second, results[i]);
  // Inputs are read only: no op writes the storage of one.
  for (const auto& [name, id] : lowered_.inputs)
    give(id, const_cast<float*>(batch.inputs.at(name).data));
  return step;
}

void Executable::run(const Batch& batch, const State& state, const std::vector<float*>& results) {
  const std::lock_guard<std::mutex> one_at_a_time(mutex_);
  checker_.check(batch, graph::shape_of(state));
  const Step step = make_step(batch, state, results);
  std::vector<int64_t> items;  // of each stage
  std::vector<int64_t> ends;   // of each part of all stages: its last item in the stage and one
  std::vector<size_t> first_part;
  for (const Stage& stage : stages_) {
    first_part.push_back(ends.size());
    items.push_back(0);
    for (const Part& part : stage)
      ends.push_back(items.back() += part.runner->items(step, part.phase));
  }
  std::unique_ptr<OpClocks> clocks;
  if (profiler_->is_on())
    clocks = std::make_unique<OpClocks>(lowered_.ops.size(), active_threads_.threads());
  const auto work = [&](uint32_t stage, int64_t item) {
    const int64_t* end = ends.data() + first_part[stage];
    size_t part = 0;
    while (item >= end[part]) ++part;
    const int64_t first = part == 0 ? 0 : end[part - 1];
    const Part& p = stages_[stage][part];
    if (clocks == nullptr) return p.runner->run(step, p.phase, item - first);
    const auto begin = OpClocks::Clock::now();
    p.runner->run(step, p.phase, item - first);
    clocks->add(p.op, OpClocks::Clock::now() - begin);
  };
  active_threads_.record(pool_->run(active_threads_.threads(), std::move(items), work));
  files_.check_unchanged();
  if (clocks != nullptr) profiler_->add(lowered_, step, *clocks);
  if (state_.paged.empty() && state_.slot.empty()) give_back();
}

// A graph without state is a picture's or a text's, whose next step may be long in coming, or that
// of another graph. Where its memory is large, to get it again is nothing beside the step.
void Executable::give_back() {
  if (memory_.size() >= kLargeBytes) memory_ = StepBuffer();
}

}  // namespace oxibonsai::cpu
