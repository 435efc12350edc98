#include "base/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace oxibonsai {

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
  for (int i = 1; i < size_; ++i) threads_.emplace_back([this, i] { serve(i); });
}

void ThreadPool::serve(int index) {
  unsigned seen = 0;
  for (;;) {
    std::shared_ptr<StagedWork> work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
      work = work_;
    }
    if (work != nullptr) work->take_part(index);
  }
}

void ThreadPool::offer(std::shared_ptr<StagedWork> work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_ = std::move(work);
    ++generation_;
  }
  wake_.notify_all();
}

void ThreadPool::run(std::vector<int64_t> items, const StagedWork::Work& work) {
  const std::lock_guard<std::mutex> one_at_a_time(run_mutex_);
  // A stage of one item is the caller's.
  const bool shared = std::any_of(items.begin(), items.end(), [](int64_t n) { return n > 1; });
  const auto staged = std::make_shared<StagedWork>(size_, std::move(items), work);
  if (shared && size_ > 1) {
    if (owner_process_ != getpid()) start();
    offer(staged);
  }
  staged->take_part(0);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_.reset();  // a thread that wakes now finds nothing to do
  }
  staged->rethrow();
}

void ThreadPool::for_each(int64_t count, int64_t piece,
                          const std::function<void(int64_t, int64_t)>& work) {
  run({(count + piece - 1) / piece},
      [&](uint32_t, int64_t item) { work(item * piece, std::min(count, (item + 1) * piece)); });
}

}  // namespace oxibonsai
