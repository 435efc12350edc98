#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "base/crew_size.h"
#include "base/huge_buffer.h"
#include "cpu/device.h"
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

// A graph that a device has compiled: its runners in stages, and their buffers, which grow to the
// largest step; large ones of a graph without state are there during a step only. One step at a
// time.
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
  // RequestError where the batch does not fit the graph or the state.
  void run(const graph::Batch& batch, const State& state, const std::vector<float*>& results);

 private:
  // A phase of an op in a stage.
  struct Part {
    const Runner* runner;
    int phase;
  };
  // Phases that don't depend on each other: the next stage waits for all of them.
  using Stage = std::vector<Part>;

  void make_runners(const CpuDevice& device);
  void make_stages();
  ValueRef ref(graph::ValueId id) const;
  int64_t bytes_of(const graph::Buffer& buffer, bool tables, int64_t rows) const;
  void give_back();
  Step make_step(const graph::Batch& batch, const State& state, const std::vector<float*>& results);

  const KernelTable& table_;
  const std::shared_ptr<ThreadPool> pool_;
  graph::LoweredGraph lowered_;
  const graph::StateSpec state_;
  const graph::BatchChecker checker_;
  std::vector<bool> tables_;        // by buffer: a reader wants lookup tables
  std::vector<RunnerPtr> runners_;  // by op
  std::vector<Stage> stages_;

  std::mutex mutex_;
  CrewSize crew_;
  std::vector<StepBuffer> memory_;  // by buffer
  StepBuffer workspace_;
};

}  // namespace oxibonsai::cpu
