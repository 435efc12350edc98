#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "base/work_shares.h"

namespace oxibonsai {

// Stages of independent items, and the threads that do them. A stage begins when all items of the
// one before it are done, not when all threads have arrived: a thread whose core the system has
// given to another process delays the others only if it was in the middle of an item.
class StagedWork {
 public:
  using Work = std::function<void(uint32_t stage, int64_t item)>;

  // `items` by stage. `work` is called by threads that take part, and not after the last item.
  StagedWork(int threads, std::vector<int64_t> items, const Work& work);

  int threads() const { return threads_; }

  // Does items until all stages are done. Any of the threads may come late or never.
  void take_part(int thread);

  // When all is done: throws what the first of the items that failed threw; after it no further
  // ones were begun. The error is the caller's from then on: a late thread that still holds the
  // work must not be the one that destroys it.
  void rethrow();

  // What threads that had nothing to do have waited for others, where it was longer than usual.
  double stalled_seconds() const;

 private:
  int64_t take_items(uint32_t stage, int thread);
  void begin(uint32_t stage);
  void wait_for_end(uint32_t stage);

  const int threads_;
  const std::vector<int64_t> items_;
  const Work& work_;
  WorkShares shares_;
  alignas(64) std::atomic<uint32_t> stage_{0};
  alignas(64) std::atomic<int64_t> remaining_{0};  // items of the stage that are not done
  std::atomic<bool> failed_{false};
  std::atomic<int> sleepers_{0};
  std::atomic<int64_t> stalled_nanoseconds_{0};
  std::mutex mutex_;
  std::condition_variable next_stage_;
  std::exception_ptr error_;  // guarded by mutex_ until all is done
};

}  // namespace oxibonsai
