#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/active_threads.h"
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
  void run(std::vector<int64_t> items, const StagedWork::Work& work) {
    run(size_, std::move(items), work);
  }

  // The same on at most so many of the threads.
  PoolRun run(int threads, std::vector<int64_t> items, const StagedWork::Work& work);

  // Calls work(begin, end) over 0 .. count in pieces of at most `piece`, on all threads.
  void for_each(int64_t count, int64_t piece, const std::function<void(int64_t, int64_t)>& work);

 private:
  // The threads beside the caller's, and what they wait for.
  struct Workers {
    std::mutex mutex;
    std::condition_variable wake;
    // A thread may still hold the work when run() has returned, so that it needs no waiting for.
    std::shared_ptr<StagedWork> work;
    unsigned generation = 0;
    bool stop = false;
    std::vector<std::thread> threads;
  };

  void start();
  void leave_behind();
  static void serve(Workers& workers, int index);
  void offer(std::shared_ptr<StagedWork> work);
  void withdraw();

  const int size_;
  int64_t owner_process_ = 0;  // threads don't survive a fork: a child makes its own
  std::mutex run_mutex_;
  std::unique_ptr<Workers> workers_;  // null until there is work to share
};

}  // namespace oxibonsai
