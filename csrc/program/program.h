#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "program/batch.h"
#include "program/kv_pages.h"
#include "program/op.h"

namespace oxibonsai::program {

struct Step;

// A forward pass as a flat list of operations over slots, checked once and executed for every step.
// One step at a time; slots are kept and grow to the largest step.
class Program {
 public:
  // The last operation's output is the result. Weights that the tier can't read are packed.
  // RequestError where shapes don't fit.
  Program(std::vector<Op> ops, std::vector<Slot> slots, std::shared_ptr<ThreadPool> pool,
          const cpu::KernelTable& table);

  int64_t result_width() const { return slots_[result_].width; }
  int64_t vocabulary() const { return vocabulary_; }

  // What compare_kernels() (program/parity.h) finds between this program's tier and another.
  std::vector<std::string> compare_kernels_with(const cpu::KernelTable& definition) const;

  // Runs the batch, whose sequences have their pages in these pools; result is [batch.outputs,
  // result_width()].
  void run(const Batch& batch, const std::vector<KvPages*>& pools, float* result);

 private:
  void check_batch(const Batch& batch, const std::vector<KvPages*>& pools) const;
  void reserve_parts(Step* step);

  const cpu::KernelTable& table_;
  const std::vector<Op> ops_;
  std::vector<Slot> slots_;
  const std::shared_ptr<ThreadPool> pool_;
  int result_ = -1;
  int64_t vocabulary_ = 0;
  int64_t positions_ = std::numeric_limits<int64_t>::max();  // of the shortest position table
  std::mutex mutex_;
  std::vector<AlignedBuffer> memory_;  // per slot
  std::vector<float> kept_parts_;      // of attention over long contexts
};

}  // namespace oxibonsai::program
