#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/active_threads.h"
#include "base/aligned.h"
#include "base/file_set.h"
#include "base/huge_buffer.h"
#include "cpu/device.h"
#include "cpu/memory_plan.h"
#include "cpu/profiler.h"
#include "cpu/runner.h"
#include "graph/batch_checker.h"
#include "graph/lowering.h"

namespace oxibonsai::cpu {

// Memory that grows; what it held is lost then. Large ones come from the system and go back to it
// at once: among the heap's small pieces they would leave holes as large as themselves.
class StepBuffer {
 public:
  uint8_t* with_room(size_t bytes);
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
  AlignedBuffer small_;
  std::unique_ptr<HugeBuffer> large_;
};

// A graph that a device has compiled: its runners in stages, and their memory, which grows to the
// largest step; if it is large and the graph has no state, it is there during a step only. One step
// at a time.
class Executable {
 public:
  // Weights must be packed for the device.
  Executable(const CpuDevice& device, const graph::Graph& graph);

  const graph::StateSpec& state() const { return state_; }
  // Names and columns of what run() gives.
  const std::vector<std::pair<std::string, int64_t>>& outputs() const {
    return lowered_.output_columns;
  }
  // Rows of an output for a batch.
  int64_t output_rows(size_t output, const graph::Batch& batch) const {
    return checker_.output_rows(output, batch);
  }

  // Runs the batch. `results` holds memory for each output, [output_rows(), columns].
  // RequestError where the batch does not fit the graph or the state; FormatError where a file that
  // was read meanwhile is no longer as it was: the results are of no use.
  void run(const graph::Batch& batch, const State& state, const std::vector<float*>& results);

  // Memory that a run of the batch takes for values and workspaces, results left out; none is
  // taken.
  int64_t step_bytes(const graph::Batch& batch, const State& state) const;
  // Of the tables of embeddings, whose rows are read where they are stored.
  int64_t table_bytes() const;

 private:
  // A phase of an op in a stage.
  struct Part {
    const Runner* runner;
    size_t op;
    int phase;
  };
  // Phases that don't depend on each other: the next stage waits for all of them.
  using Stage = std::vector<Part>;

  // Memory of a value, or of several of which each replaces the one before.
  struct Storage {
    int space;  // index into LoweredGraph::spaces
    int64_t cols;
    graph::ValueType type;
    bool tables;  // a reader wants lookup tables
    bool given;   // the caller's: an input or a result
  };

  void make_storages();
  void make_runners(const CpuDevice& device);
  void make_stages();
  ValueRef ref(graph::ValueId id) const;
  int storage_of(graph::ValueId id) const { return storage_of_[static_cast<size_t>(id)]; }
  int64_t bytes_of(const Storage& storage, int64_t rows) const;
  std::vector<int64_t> sizes(const Step& step) const;
  void place_memory(Step* step);
  void give_back();
  Step measured_step(const graph::Batch& batch, const State& state) const;
  Step make_step(const graph::Batch& batch, const State& state, const std::vector<float*>& results);

  const KernelTable& table_;
  const std::shared_ptr<ThreadPool> pool_;
  const std::shared_ptr<Profiler> profiler_;
  graph::LoweredGraph lowered_;
  const graph::StateSpec state_;
  const graph::BatchChecker checker_;
  std::vector<int> storage_of_;  // by value; -1 where no op makes it
  std::vector<Storage> storages_;
  std::vector<RunnerPtr> runners_;  // by op
  FileSet files_;                   // that are read while the graph runs
  std::vector<Stage> stages_;
  std::vector<Lifetime> lifetimes_;  // of the storages, then of the workspace of each op

  std::mutex mutex_;
  ActiveThreads active_threads_;
  StepBuffer memory_;
  std::vector<int64_t> planned_;  // bytes of storages and workspaces that the plan is for
  MemoryPlan plan_;
};

}  // namespace oxibonsai::cpu
