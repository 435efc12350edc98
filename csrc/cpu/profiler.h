#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cpu/step.h"
#include "graph/lowering.h"

namespace oxibonsai::cpu {

// What ops of one kind took.
struct OpTime {
  std::string op;       // its name
  std::string weights;  // types of its matrices: "", "Q4_0", "Q4_0+Q6_K"
  int64_t runs = 0;
  int64_t multiply_adds = 0;  // in its matrices
  double seconds = 0;         // of all threads together
};

// The time of each op of one step. A thread's times lie by themselves, or nearly so.
class OpClocks {
 public:
  using Clock = std::chrono::steady_clock;

  OpClocks(size_t ops, int threads);
  void add(size_t op, Clock::duration time);
  double seconds(size_t op) const;

 private:
  const size_t ops_, threads_;
  const std::unique_ptr<std::atomic<int64_t>[]> nanoseconds_;  // [threads, ops]
};

// Sums the times of the ops that run on a device from start() to end(); off until then. An
// operation's seconds include those that its threads were taken from the processor for, but not
// those that a thread waited for the others of its stage.
class Profiler {
 public:
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  void start();
  // In the order of their first run. RequestError where nothing was started.
  std::vector<OpTime> end();

  // Adds a step.
  void add(const graph::LoweredGraph& graph, const Step& step, const OpClocks& clocks);

 private:
  OpTime& entry(const std::string& op, const std::string& weights);

  std::atomic<bool> is_on_{false};
  std::mutex mutex_;
  std::vector<OpTime> times_;  // guarded by mutex_
};

}  // namespace oxibonsai::cpu
