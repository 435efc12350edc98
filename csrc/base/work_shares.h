#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace oxibonsai {

// Hands the items 0 .. count - 1 of one phase after the other to threads. Each thread has a run of
// neighbouring items of its own, which it takes front to back, and then helps the others: two
// threads that take turns at the items of one run read memory at little more than half the speed of
// two that read a run each.
class WorkShares {
 public:
  explicit WorkShares(int threads) : threads_(threads), shares_(threads) {}

  // The next item for this thread, or -1 when all are taken. `phase` counts up from 0.
  int64_t next(unsigned phase, int thread, int64_t count) {
    for (int i = 0; i < threads_; ++i) {
      const int owner = (thread + i) % threads_;
      const int64_t first = count * owner / threads_;
      const int64_t length = count * (owner + 1) / threads_ - first;
      std::atomic<int64_t>& taken = shares_[owner].taken[phase % 2];
      if (taken.load(std::memory_order_relaxed) >= length) continue;
      const int64_t item = taken.fetch_add(1, std::memory_order_relaxed);
      if (item < length) return first + item;
    }
    return -1;
  }

  // Each thread calls it when it finds no more items, before the barrier that ends the phase: the
  // counter that it clears for the next phase was last read in the one before, which all have left.
  void prepare_next(unsigned phase, int thread) {
    shares_[thread].taken[(phase + 1) % 2].store(0, std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> taken[2] = {};
  };

  const int threads_;
  std::vector<Share> shares_;
};

}  // namespace oxibonsai
