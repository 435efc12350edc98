#include "base/staged_work.h"

#include <chrono>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace oxibonsai {
namespace {

// The threads of a stage end within a few microseconds of each other while all have their cores.
// Whoever waits longer waits for a thread whose core another process has, and sleeps: to yield
// instead would hand this core to such a process for milliseconds, where a sleeper that is woken
// goes before it.
constexpr std::chrono::microseconds kSpin(70);
constexpr int kLooks = 32;  // at the stage between two looks at the clock

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

StagedWork::StagedWork(int threads, std::vector<int64_t> items, const Work& work)
    : threads_(threads), items_(std::move(items)), work_(work), shares_(threads) {
  begin(0);
}

void StagedWork::take_part(int thread) {
  for (;;) {
    const uint32_t stage = stage_.load(std::memory_order_acquire);
    if (stage == items_.size()) return;
    const int64_t done = take_items(stage, thread);
    if (done > 0 && remaining_.fetch_sub(done, std::memory_order_acq_rel) == done)
      begin(stage + 1);
    else
      wait_for_end(stage);
  }
}

void StagedWork::rethrow() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

double StagedWork::stalled_seconds() const {
  return 1e-9 * static_cast<double>(stalled_nanoseconds_.load(std::memory_order_relaxed));
}

int64_t StagedWork::take_items(uint32_t stage, int thread) {
  int64_t done = 0;
  for (int64_t item; (item = shares_.next(stage, thread, items_[stage])) >= 0; ++done) {
    if (failed_.load(std::memory_order_relaxed)) continue;
    try {
      work_(stage, item);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
  }
  return done;
}

// Called by whoever did the last item of the stage before. The sleepers count themselves before
// they look at the stage, so either they see the new one or they are seen here.
void StagedWork::begin(uint32_t stage) {
  while (stage < items_.size() && items_[stage] == 0) ++stage;
  if (stage < items_.size()) remaining_.store(items_[stage], std::memory_order_relaxed);
  stage_.store(stage, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  next_stage_.notify_all();
}

void StagedWork::wait_for_end(uint32_t stage) {
  const auto ended = [&] { return stage_.load(std::memory_order_seq_cst) != stage; };
  const auto begin = std::chrono::steady_clock::now();
  const auto until = begin + kSpin;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (ended()) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() < until);
  std::unique_lock<std::mutex> lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  next_stage_.wait(lock, ended);
  const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - begin;
  stalled_nanoseconds_.fetch_add(waited.count(), std::memory_order_relaxed);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace oxibonsai
