#include "cpu/executable.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
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
int state_written(const graph::Wkv7Scan& op) { return 2 * op.slot + 1; }

// Of one buffer that comes from the system.
constexpr size_t kMappedBytes = 4 << 20;
// Of all buffers that are not kept between the steps of a graph without state.
constexpr size_t kLargeBytes = 64 << 20;

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
  return quantized_rows(memory[static_cast<size_t>(v.buffer)], rows_of(v), v.cols, v.tables);
}

Executable::Executable(const CpuDevice& device, const graph::Graph& graph)
    : table_(device.table()),
      pool_(device.pool()),
      lowered_(graph::lower(graph)),
      state_(graph.state()),
      checker_(lowered_, state_),
      crew_(pool_->size()) {
  tables_.resize(lowered_.buffers.size());
  for (const graph::Op& op : lowered_.ops) {
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

ValueRef Executable::ref(ValueId id) const {
  const graph::Value& v = lowered_.values[static_cast<size_t>(id)];
  const int buffer = lowered_.buffer_of[static_cast<size_t>(id)];
  const auto b = static_cast<size_t>(buffer);
  return {buffer, lowered_.space_of[b], v.cols, v.type, tables_[b]};
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
    const int64_t rows = step.rows[static_cast<size_t>(lowered_.space_of[i])];
    const auto bytes = static_cast<size_t>(bytes_of(lowered_.buffers[i], tables_[i], rows));
    step.memory[i] = memory_[i].with_room(bytes);
  }
  int64_t workspace = 0;
  for (const RunnerPtr& r : runners_) workspace = std::max(workspace, r->workspace_bytes(step));
  step.workspace = workspace_.with_room(static_cast<size_t>(workspace));
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
  const auto work = [&](uint32_t stage, int64_t item) {
    const int64_t* end = ends.data() + first_part[stage];
    size_t part = 0;
    while (item >= end[part]) ++part;
    const int64_t first = part == 0 ? 0 : end[part - 1];
    const Part& p = stages_[stage][part];
    p.runner->run(step, p.phase, item - first);
  };
  crew_.record(pool_->run(crew_.threads(), std::move(items), work));
  if (state_.paged.empty() && state_.slot.empty()) give_back();
}

// A graph without state is a picture's or a text's, whose next step may be long in coming, or that
// of another graph. Where its buffers are large, to get them again is nothing beside the step.
void Executable::give_back() {
  size_t bytes = workspace_.size();
  for (const StepBuffer& b : memory_) bytes += b.size();
  if (bytes < kLargeBytes) return;
  for (StepBuffer& b : memory_) b = StepBuffer();
  workspace_ = StepBuffer();
}

}  // namespace oxibonsai::cpu
