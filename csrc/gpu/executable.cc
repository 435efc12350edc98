#include "gpu/executable.h"

#include <algorithm>

#include "gpu/kernel_args.h"
#include "graph/tables.h"

namespace oxibonsai::gpu {
namespace {

using graph::Batch;
using graph::RowSpace;
using graph::ValueId;
using graph::ValueType;

constexpr uint32_t kTopThreads = 256;
constexpr graph::Fusions kFusions{/*attention_rounds=*/true, /*prepare_heads=*/true};
// Columns of a block of top_k: 8 for each of its threads, and a vocabulary occupies 75 blocks.
constexpr int64_t kTopPart = 2048;
// A step's tables get memory by so much, so that longer ones seldom move them.
constexpr int64_t kTableBytes = 16 << 10;
// Of a device's memory: what one op may take to run in fewer launches.
constexpr int64_t kWorkspaceShare = 64;

int64_t bytes_of(const graph::Buffer& b, int64_t rows) {
  if (b.type == ValueType::kInt8) return rounded_bytes(rows * b.cols);
  return rows * b.cols * static_cast<int64_t>(sizeof(float));
}

bool has_one_reader(const graph::LoweredGraph& g, ValueId id) {
  int64_t readers = 0;
  for (const graph::Op& op : g.ops) {
    const std::vector<ValueId> read = graph::inputs_of(op);
    readers += std::count(read.begin(), read.end(), id);
  }
  const bool is_output = std::any_of(g.outputs.begin(), g.outputs.end(),
                                     [id](const auto& output) { return output.second == id; });
  return readers == 1 && !is_output;
}

// `buffer` with room for so many bytes; what it held is lost where it grows.
Address with_room(Backend& backend, BufferPtr& buffer, int64_t bytes) {
  if (buffer == nullptr || buffer->bytes() < bytes) {
    buffer.reset();  // before the new one, which may need its room
    buffer = backend.allocate(std::max<int64_t>(bytes, 256));
  }
  return {buffer.get(), 0};
}

}  // namespace

Executable::Executable(const GpuDevice& device, const graph::Graph& graph)
    : backend_(device.backend()),
      pool_(device.pool()),
      lowered_(graph::lower(graph, kFusions)),
      state_(graph.state()),
      checker_(lowered_, state_),
      constants_(backend_) {
  memory_.resize(lowered_.buffers.size());
  constexpr auto kCounterBytes = kCounters * static_cast<int64_t>(sizeof(uint32_t));
  counters_ = backend_->allocate(kCounterBytes);
  backend_->fill({counters_.get(), 0}, 0, kCounterBytes);
  const RunnerContext context{
      &state_,
      backend_->capabilities(),
      backend_->memory().total / kWorkspaceShare,
      pool_.get(),
      &constants_,
      {counters_.get(), 0},
      [this](ValueId id) { return ref(id); },
      [this](ValueId id) { return has_one_reader(lowered_, id); },
      [&device](const graph::WeightPtr& w) {
        PackedWeightPtr packed = device.packed(w);
        if (packed == nullptr) throw RequestError(w->name() + " is not packed for this device");
        return packed;
      },
  };
  const std::vector<graph::Op>& ops = lowered_.ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    RunnerPtr joined =
        i + 1 < ops.size() ? make_joined_runner(ops[i], ops[i + 1], context) : nullptr;
    if (joined != nullptr) {
      runners_.push_back(std::move(joined));
      ++i;
    } else {
      runners_.push_back(ops[i].visit([&](const auto& o) { return make_runner(o, context); }));
    }
  }
  for (const graph::WeightPtr& table : graph::tables_of(lowered_)) files_.add(table->data());
}

ValueRef Executable::ref(ValueId id) const {
  const graph::Value& v = lowered_.values[static_cast<size_t>(id)];
  const int buffer = lowered_.buffer_of[static_cast<size_t>(id)];
  return {buffer, lowered_.space_of[static_cast<size_t>(buffer)], v.cols, v.type};
}

void Executable::check(const Batch& batch, const State& state) const {
  checker_.check(batch, graph::shape_of(state));
  // Recurrences take a sequence for each y or z of a grid; rows are always its x.
  if (!state_.slot.empty() && batch.spans.size() > UINT16_MAX)
    throw CapacityError("a step of " + std::to_string(batch.spans.size()) +
                        " sequences is too large for a GPU: at most 65535");
}

void Executable::place_buffers(Step* step) {
  step->memory.resize(memory_.size());
  for (size_t i = 0; i < memory_.size(); ++i) {
    const int64_t rows = step->rows[static_cast<size_t>(lowered_.space_of[i])];
    step->memory[i] = with_room(*backend_, memory_[i], bytes_of(lowered_.buffers[i], rows));
  }
  int64_t bytes = 0;
  for (const RunnerPtr& r : runners_) bytes = std::max(bytes, r->workspace_bytes(*step));
  step->workspace = with_room(*backend_, workspace_, bytes);
  const auto table_bytes = static_cast<int64_t>(step->tables.words.size() * sizeof(int32_t));
  step->words = with_room(*backend_, tables_, (table_bytes / kTableBytes + 1) * kTableBytes);
  backend_->upload(step->tables.words.data(), step->words, table_bytes);
}

void Executable::upload_inputs(const Step& step) const {
  for (const auto& [name, id] : lowered_.inputs) {
    const graph::InputArray& array = step.batch->inputs.at(name);
    backend_->upload(array.data,
                     step.memory[static_cast<size_t>(lowered_.buffer_of[static_cast<size_t>(id)])],
                     array.rows * array.cols * static_cast<int64_t>(sizeof(float)));
  }
}

Step Executable::run_step(const Batch& batch, const State& state) {
  kept_rows_.clear();
  check(batch, state);
  Step step{};
  launches_.clear();  // of a step that failed
  step.backend = backend_.get();
  step.launches = &launches_;
  step.batch = &batch;
  step.state = &state;
  for (const RowSpace& rows : lowered_.spaces) step.rows.push_back(graph::rows_in(rows, batch));
  step.tables = step_tables(batch, state);
  for (const RunnerPtr& r : runners_) r->prepare(&step);
  add_pages(&step.tables, batch);
  place_buffers(&step);
  upload_inputs(step);
  for (const RunnerPtr& r : runners_) r->run(step);
  files_.check_unchanged();
  step.submit();
  return step;
}

void Executable::run(const Batch& batch, const State& state, const std::vector<float*>& results) {
  const std::lock_guard<std::mutex> one_at_a_time(mutex_);
  const Step step = run_step(batch, state);
  for (size_t i = 0; i < lowered_.outputs.size(); ++i) {
    const ValueRef value = ref(lowered_.outputs[i].second);
    const int64_t bytes = step.values_of(value) * static_cast<int64_t>(sizeof(float));
    if (bytes > 0) step.download(step.address(value), results[i], bytes);
  }
  backend_->synchronize();
}

void Executable::run_top(const Batch& batch, const State& state, size_t output, int64_t k,
                         int32_t* ids, float* values) {
  const std::lock_guard<std::mutex> one_at_a_time(mutex_);
  const ValueRef value = ref(lowered_.outputs.at(output).second);
  if (k < 1 || k > std::min(value.cols, kTopPart))
    throw RequestError("the " + std::to_string(k) + " largest of " + std::to_string(value.cols) +
                       " values were asked for; at most " + std::to_string(kTopPart) + " can be");
  const Step step = run_step(batch, state);
  const int64_t rows = step.rows_of(value);
  if (rows > 0) {
    const int64_t parts = blocks_of(value.cols, kTopPart), bytes = 4 * rows * k;
    const Address memory = with_room(*backend_, workspace_, 2 * bytes * (1 + parts));
    args::TopArgs a{};
    a.cols = static_cast<uint32_t>(value.cols);
    a.part = static_cast<uint32_t>(kTopPart);
    a.parts = static_cast<uint32_t>(parts);
    a.k = static_cast<uint32_t>(k);
    const Address of_parts = memory + 2 * bytes;
    const auto blocks = static_cast<uint32_t>(rows);
    step.launch(
        "top_k", {blocks, a.parts}, kTopThreads, a,
        std::array<Address, 4>{step.address(value), of_parts, of_parts, of_parts + bytes * parts});
    a.cols = a.part = static_cast<uint32_t>(parts * k);
    a.parts = a.named = 1;
    step.launch("top_k", {blocks}, kTopThreads, a,
                std::array<Address, 4>{of_parts + bytes * parts, of_parts, memory, memory + bytes});
    step.download(memory, ids, bytes);
    step.download(memory + bytes, values, bytes);
  }
  backend_->synchronize();
  for (const auto& [name, id] : lowered_.outputs) kept_rows_.push_back(step.rows_of(ref(id)));
}

void Executable::read_row(size_t output, int64_t row, float* result) {
  const std::lock_guard<std::mutex> one_at_a_time(mutex_);
  if (output >= kept_rows_.size() || row < 0 || row >= kept_rows_[output])
    throw RequestError("the latest step left no row " + std::to_string(row) + " on the device");
  const ValueRef value = ref(lowered_.outputs[output].second);
  const int64_t bytes = value.cols * static_cast<int64_t>(sizeof(float));
  const Address memory{memory_[static_cast<size_t>(value.buffer)].get(), 0};
  backend_->download(memory + row * bytes, result, bytes);
  backend_->synchronize();
}

void Executable::keep_kernel_names() {
  const std::lock_guard<std::mutex> one_at_a_time(mutex_);
  launches_.keep_names();
}

std::vector<std::string> Executable::kernel_names() {
  const std::lock_guard<std::mutex> one_at_a_time(mutex_);
  return {launches_.names().begin(), launches_.names().end()};
}

}  // namespace oxibonsai::gpu
