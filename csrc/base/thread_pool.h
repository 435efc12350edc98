#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/staged_work.h"

namespace oxibonsai {

// A fixed set of threads that sleep between two calls of run(), the calling thread among them.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls work(stage, item) for every item < items[stage], one stage after the other, the items of
  // a stage in any order on any threads, and returns when the last one is done. The first exception
  // is thrown again and ends the work. One call at a time; others wait.
  void run(std::vector<int64_t> items, const StagedWork::Work& work);

  // Calls work(begin, end) over 0 .. count in pieces of at most `piece`, on all threads.
  void for_each(int64_t count, int64_t piece, const std::function<void(int64_t, int64_t)>& work);

 private:
  void start();
  void serve(int index);
  void offer(std::shared_ptr<StagedWork> work);

  const int size_;
  long owner_process_ = 0;  // threads don't survive a fork: a child makes its own
  std::vector<std::thread> threads_;
  std::mutex run_mutex_;
  std::mutex mutex_;
  std::condition_variable wake_;
  // A thread may still hold the work when run() has returned, so that it needs no waiting for.
  std::shared_ptr<StagedWork> work_;
  unsigned generation_ = 0;
  bool stop_ = false;
};

}  // namespace oxibonsai
