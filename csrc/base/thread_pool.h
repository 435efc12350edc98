#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace oxibonsai {

// Threads of one step meet here between two operations. Spins briefly, then sleeps: on a machine
// shared with others the thread that is waited for may have been descheduled, and needs this core.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}
  void wait();

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> round_{0};
  std::mutex mutex_;
  int sleepers_ = 0;  // guarded by mutex_
  std::condition_variable next_round_;
};

// A fixed set of threads that sleep between two calls of run().
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls body(i) once for every i < size(), index 0 on the calling thread, and returns when all
  // have returned. The first exception is thrown again. One call at a time; others wait.
  void run(const std::function<void(int)>& body);

  // Calls work(begin, end) over 0 .. count in pieces of at most `piece`, on all threads.
  void for_each(int64_t count, int64_t piece, const std::function<void(int64_t, int64_t)>& work);

 private:
  void start();
  void work(int index);
  void call(const std::function<void(int)>& body, int index);

  const int size_;
  long owner_process_ = 0;  // threads don't survive a fork: a child makes its own
  std::vector<std::thread> threads_;
  std::mutex run_mutex_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(int)>* body_ = nullptr;
  unsigned generation_ = 0;
  int pending_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
};

}  // namespace oxibonsai
