#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace oxibonsai {

// Hands the items 0 .. count - 1 of one stage after the other to threads. Each thread has a run of
// neighbouring items of its own, which it takes front to back, and then helps the others: two
// threads that take turns at the items of one run read memory at little more than half the speed of
// two that read a run each.
class WorkShares {
 public:
  explicit WorkShares(int threads) : threads_(threads), shares_(static_cast<size_t>(threads)) {}

  // The next item of a stage for this thread, or -1 when all are taken, as they are for a thread
  // that comes back to a stage long past. Stages count up from 0; a share has less than 2^32 items.
  int64_t next(uint32_t stage, int thread, int64_t count) {
    for (int i = 0; i < threads_; ++i) {
      const int owner = (thread + i) % threads_;
      const int64_t first = count * owner / threads_;
      const int64_t length = count * (owner + 1) / threads_ - first;
      const int64_t item = take(shares_[static_cast<size_t>(owner)].taken, stage, length);
      if (item >= 0) return first + item;
    }
    return -1;
  }

 private:
  // The stage in the upper half, how many of its items are taken in the lower: a counter that is
  // still of an earlier stage has not been touched in this one.
  struct alignas(64) Share {
    std::atomic<uint64_t> taken{0};
  };

  static int64_t take(std::atomic<uint64_t>& taken, uint32_t stage, int64_t length) {
    uint64_t now = taken.load(std::memory_order_relaxed);
    for (;;) {
      const auto of_stage = static_cast<uint32_t>(now >> 32);
      const int64_t item = of_stage < stage ? 0 : static_cast<int64_t>(now & UINT32_MAX);
      if (of_stage > stage || item >= length) return -1;
      const uint64_t next = (uint64_t{stage} << 32) + static_cast<uint64_t>(item) + 1;
      if (taken.compare_exchange_weak(now, next, std::memory_order_relaxed)) return item;
    }
  }

  const int threads_;
  std::vector<Share> shares_;
};

}  // namespace oxibonsai
