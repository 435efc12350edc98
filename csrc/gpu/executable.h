#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/file_set.h"
#include "gpu/constants.h"
#include "gpu/device.h"
#include "gpu/runner.h"
#include "graph/batch_checker.h"
#include "graph/lowering.h"

namespace oxibonsai::gpu {

// A graph that a device has compiled: its runners in order, and their buffers, which grow to the
// largest step. One step at a time. After an error of a step its buffers are as good as new.
class Executable {
 public:
  // Weights must be packed for the device.
  Executable(const GpuDevice& device, const graph::Graph& graph);

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
  // RequestError where the batch does not fit the graph or the state, CapacityError where a step of
  // this size does not fit into the device's memory.
  void run(const graph::Batch& batch, const State& state, const std::vector<float*>& results);

  // The same, of which only the k largest of each row of one output come back, the largest first,
  // the lower id first where two are equal: [rows, k] each. All outputs stay on the device. k is at
  // most 2048, of which sampling wants far fewer.
  void run_top(const graph::Batch& batch, const State& state, size_t output, int64_t k,
               int32_t* ids, float* values);

  // A row of an output of the latest step, [columns]. RequestError where it has no such row.
  void read_row(size_t output, int64_t row, float* result);

  // Keeps the names of the kernels that steps launch from now on; those of the steps so far.
  void keep_kernel_names();
  std::vector<std::string> kernel_names();

 private:
  ValueRef ref(graph::ValueId id) const;
  void check(const graph::Batch& batch, const State& state) const;
  Step run_step(const graph::Batch& batch, const State& state);
  void place_buffers(Step* step);
  void upload_inputs(const Step& step) const;

  const BackendPtr backend_;
  const std::shared_ptr<ThreadPool> pool_;
  graph::LoweredGraph lowered_;
  const graph::StateSpec state_;
  const graph::BatchChecker checker_;
  Constants constants_;
  BufferPtr counters_;  // of the launch that runs
  std::vector<RunnerPtr> runners_;
  FileSet files_;  // that are read while the graph runs

  std::mutex mutex_;
  std::vector<BufferPtr> memory_;  // by buffer
  BufferPtr tables_, workspace_;
  LaunchQueue launches_;
  std::vector<int64_t> kept_rows_;  // by output: of the latest step; empty where it left none
};

}  // namespace oxibonsai::gpu
