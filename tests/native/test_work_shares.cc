// Items of many phases, handed out to threads: each exactly once, whatever the threads do.

#include <atomic>

#include "base/thread_pool.h"
#include "base/work_shares.h"
#include "check.h"

using namespace oxibonsai;

namespace {

void check_threads(int threads) {
  constexpr int kPhases = 400;
  ThreadPool pool(threads);
  WorkShares shares(threads);
  Barrier barrier(threads);
  std::vector<std::vector<std::atomic<int>>> taken;
  for (int p = 0; p < kPhases; ++p) taken.emplace_back(static_cast<size_t>(p % 7 * p % 50));
  pool.run([&](int thread) {
    for (unsigned p = 0; p < kPhases; ++p) {
      const auto count = static_cast<int64_t>(taken[p].size());
      for (int64_t item; (item = shares.next(p, thread, count)) >= 0;) ++taken[p][item];
      shares.prepare_next(p, thread);
      barrier.wait();
    }
  });
  for (const auto& phase : taken)
    for (const auto& count : phase)
      CHECK(count == 1, std::to_string(threads) + " threads: an item was taken " +
                            std::to_string(count) + " times");
}

// A thread alone takes its own run first, front to back, then those of the others.
void check_order() {
  WorkShares shares(2);
  std::vector<int64_t> order;
  for (int64_t item; (item = shares.next(0, 1, 6)) >= 0;) order.push_back(item);
  CHECK((order == std::vector<int64_t>{3, 4, 5, 0, 1, 2}), "own items first");
}

}  // namespace

int main() {
  for (const int threads : {1, 2, 3, 5}) check_threads(threads);
  check_order();
  return test::finish("work shares");
}
