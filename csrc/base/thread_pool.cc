#include "base/thread_pool.h"

#include <unistd.h>

#include <algorithm>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace oxibonsai {
namespace {

// About ten microseconds, longer than the usual gap between two threads at a barrier.
constexpr int kSpins = 300;

// Then about a hundred microseconds of yielding the core to other threads. A thread that sleeps
// comes back so late that the next ones to wait go to sleep, too: one disturbance would cost many
// barriers.
constexpr int kYields = 200;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

void Barrier::wait() {
  const unsigned round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    // Under the lock, so that a thread that goes to sleep has seen the new round or is seen here.
    const std::lock_guard<std::mutex> lock(mutex_);
    round_.store(round + 1, std::memory_order_release);
    if (sleepers_ > 0) next_round_.notify_all();
    return;
  }
  for (int i = 0; i < kSpins; ++i) {
    if (round_.load(std::memory_order_acquire) != round) return;
    relax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (round_.load(std::memory_order_acquire) != round) return;
    std::this_thread::yield();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  ++sleepers_;
  next_round_.wait(lock, [&] { return round_.load(std::memory_order_acquire) != round; });
  --sleepers_;
}

ThreadPool::ThreadPool(int threads) : size_(threads) {
  if (threads < 1 || threads > 1024)
    throw RequestError("a thread pool has 1 to 1024 threads, not " + std::to_string(threads));
}

ThreadPool::~ThreadPool() {
  if (owner_process_ != getpid()) {
    for (std::thread& t : threads_) t.detach();  // they exist in the parent process only
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::start() {
  for (std::thread& t : threads_) t.detach();
  threads_.clear();
  owner_process_ = getpid();
  generation_ = 0;
  pending_ = 0;
  for (int i = 1; i < size_; ++i) threads_.emplace_back([this, i] { work(i); });
}

void ThreadPool::call(const std::function<void(int)>& body, int index) {
  try {
    body(index);
  } catch (...) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::work(int index) {
  unsigned seen = 0;
  for (;;) {
    const std::function<void(int)>* body;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
      body = body_;
    }
    call(*body, index);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--pending_ == 0) done_.notify_one();
  }
}

void ThreadPool::run(const std::function<void(int)>& body) {
  const std::lock_guard<std::mutex> one_at_a_time(run_mutex_);
  if (owner_process_ != getpid()) start();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    body_ = &body;
    pending_ = size_ - 1;
    error_ = nullptr;
    ++generation_;
  }
  wake_.notify_all();
  call(body, 0);
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [&] { return pending_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::for_each(int64_t count, int64_t piece,
                          const std::function<void(int64_t, int64_t)>& work) {
  std::atomic<int64_t> next{0};
  run([&](int) {
    for (int64_t begin; (begin = next.fetch_add(piece)) < count;)
      work(begin, std::min(count, begin + piece));
  });
}

}  // namespace oxibonsai
