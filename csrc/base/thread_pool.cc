#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/os/os.h"

namespace oxibonsai {

ThreadPool::ThreadPool(int threads) : size_(threads) {
  if (threads < 1 || threads > 1024)
    throw RequestError("a thread pool has 1 to 1024 threads, not " + std::to_string(threads));
}

ThreadPool::~ThreadPool() {
  if (workers_ == nullptr) return;
  if (owner_process_ != os::process_id()) {
    leave_behind();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(workers_->mutex);
    workers_->stop = true;
  }
  workers_->wake.notify_all();
  for (std::thread& t : workers_->threads) t.join();
}

void ThreadPool::start() {
  leave_behind();
  workers_ = std::make_unique<Workers>();
  owner_process_ = os::process_id();
  for (int i = 1; i < size_; ++i)
    workers_->threads.emplace_back([&workers = *workers_, i] { serve(workers, i); });
}

// Forgets threads that exist in the parent process only. Neither they nor what they wait on may be
// destroyed, nor used: the condition still counts them, and a call would wait for them for ever.
void ThreadPool::leave_behind() { static_cast<void>(workers_.release()); }

void ThreadPool::serve(Workers& workers, int index) {
  unsigned seen = 0;
  for (;;) {
    std::shared_ptr<StagedWork> work;
    {
      std::unique_lock<std::mutex> lock(workers.mutex);
      workers.wake.wait(lock, [&] { return workers.stop || workers.generation != seen; });
      if (workers.stop) return;
      seen = workers.generation;
      work = workers.work;
    }
    if (work != nullptr && index < work->threads()) work->take_part(index);
  }
}

void ThreadPool::offer(std::shared_ptr<StagedWork> work) {
  if (owner_process_ != os::process_id()) start();
  {
    const std::lock_guard<std::mutex> lock(workers_->mutex);
    workers_->work = std::move(work);
    ++workers_->generation;
  }
  workers_->wake.notify_all();
}

// A thread that wakes from now on finds nothing to do.
void ThreadPool::withdraw() {
  const std::lock_guard<std::mutex> lock(workers_->mutex);
  workers_->work.reset();
}

PoolRun ThreadPool::run(int threads, std::vector<int64_t> items, const StagedWork::Work& work) {
  const std::lock_guard<std::mutex> one_at_a_time(run_mutex_);
  const auto begin = std::chrono::steady_clock::now();
  threads = std::min(threads, size_);
  // A stage of one item is the caller's.
  const bool shared =
      threads > 1 && std::any_of(items.begin(), items.end(), [](int64_t n) { return n > 1; });
  const int64_t count = std::accumulate(items.begin(), items.end(), int64_t{0});
  const auto staged = std::make_shared<StagedWork>(threads, std::move(items), work);
  if (shared) offer(staged);
  staged->take_part(0);
  if (shared) withdraw();
  staged->rethrow();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  return {count, spent.count(), staged->stalled_seconds()};
}

void ThreadPool::for_each(int64_t count, int64_t piece,
                          const std::function<void(int64_t, int64_t)>& work) {
  run({(count + piece - 1) / piece},
      [&](uint32_t, int64_t item) { work(item * piece, std::min(count, (item + 1) * piece)); });
}

}  // namespace oxibonsai
