// How many threads take part in a run, from what runs have taken: on a quiet machine, beside
// processes that take cores for a while, and where threads wait for each other for other reasons.

#include "base/active_threads.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "base/thread_pool.h"
#include "check.h"

using namespace oxibonsai;

namespace {

// Seconds of a run with so many threads, and what of them is lost by waits.
struct Pace {
  double seconds;
  double stalled;
};
using Machine = std::function<Pace(int threads)>;

constexpr int64_t kItems = 10'000;

Pace quiet(int threads) { return {0.016 / threads, 0.01 * 0.016 / threads}; }

// Of four cores, others have so many: a thread beyond the rest makes all wait.
Machine busy(int taken) {
  return [taken](int threads) {
    const int free = 4 - taken;
    if (threads <= free) return quiet(threads);
    return Pace{1.5 * 0.016 / free, 0.4 * 0.016 / free};
  };
}

// The mean of threads() over so many runs.
double used(ActiveThreads* active, int runs, const Machine& machine) {
  double sum = 0;
  for (int i = 0; i < runs; ++i) {
    sum += active->threads();
    const Pace pace = machine(active->threads());
    active->record({kItems + i % 3, pace.seconds, pace.stalled});
  }
  return sum / runs;
}

void check_quiet() {
  ActiveThreads active(4);
  CHECK(used(&active, 100'000, quiet) == 4, "all threads, always, on a quiet machine");
}

void check_busy() {
  for (int taken = 1; taken < 4; ++taken) {
    ActiveThreads active(4);
    const std::string who = std::to_string(taken) + " of four cores taken";
    used(&active, 2'000, busy(taken));
    const double mean = used(&active, 10'000, busy(taken));
    CHECK(mean > 3.9 - taken && mean < 4.1 - taken, who + ": " + std::to_string(mean));
    used(&active, 10'000, quiet);
    CHECK(active.threads() == 4, who + ": all threads again when the others have ended");
  }
}

// Another process that ends when a trial begins: the trial is faster than what was before it, and
// slower than all threads would be from now on.
void check_passing_disturbance() {
  ActiveThreads active(2);
  bool over = false;
  int alone = 0;  // runs on one thread
  for (int i = 0; i < 2'000; ++i) {
    over = over || active.threads() == 1;
    alone += active.threads() == 1 ? 1 : 0;
    const Pace pace = over ? quiet(active.threads()) : Pace{0.03, 0.015};
    active.record({kItems, pace.seconds, pace.stalled});
  }
  CHECK(over && alone < 10,
        "one window on one thread, no more: " + std::to_string(alone) + " runs");
}

// As of a stage with one long item: fewer threads would only be slower.
void check_waits_of_other_causes() {
  ActiveThreads active(4);
  const Machine uneven = [](int threads) { return Pace{0.016 / threads + 0.004, 0.003 * threads}; };
  CHECK(used(&active, 50'000, uneven) > 3.95, "trials that fail become rare");
  CHECK(active.threads() >= 3, "and nothing comes of them");
}

// A thread more that gains nothing is left to others; one thread never becomes none.
void check_no_gain() {
  ActiveThreads active(2);
  const Machine same = [](int threads) { return Pace{0.016, threads > 1 ? 0.008 : 0}; };
  used(&active, 1'000, same);
  CHECK(used(&active, 10'000, same) < 1.05, "one thread where two are not faster");
  ActiveThreads alone(1);
  CHECK(used(&alone, 1'000, [](int) { return Pace{0.016, 0.016}; }) == 1, "one thread stays");
}

// Steps of different work say nothing about each other: a trial that another kind of work
// interrupts is given up, and work that changes with each step starts none.
void check_other_work() {
  ActiveThreads active(2);
  while (active.threads() == 2) used(&active, 1, [](int) { return Pace{0.016, 0.008}; });
  active.record({kItems * 8, 0.001, 0});
  CHECK(active.threads() == 2, "other work ends a trial that cannot be judged");
  for (int i = 0; i < 10'000; ++i) {
    active.record({kItems * (1 + i % 2), 0.016, 0.008});
    if (active.threads() != 2) break;
  }
  CHECK(active.threads() == 2, "windows of mixed work are never full");
}

// A pool reports waits for a thread that is stopped in the middle of an item, and runs on as many
// threads as it is told.
void check_pool() {
  using std::chrono::milliseconds;
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  bool stalled = false;
  for (int i = 0; i < 100 && !stalled; ++i) {
    std::atomic<int> arrived{0};
    const PoolRun run = pool.run(2, {2, 4}, [&](uint32_t stage, int64_t) {
      ++arrived;
      while (stage == 0 && arrived < 2) std::this_thread::yield();  // both threads are there
      if (stage == 1 && std::this_thread::get_id() != caller)
        std::this_thread::sleep_for(milliseconds(20));
    });
    CHECK(run.items == 6 && run.seconds > 0, "items and time of a run");
    stalled = run.stalled_seconds > 0.001;
  }
  CHECK(stalled, "a thread that was stopped in an item was waited for");

  std::atomic<int> others{0};
  const PoolRun alone = pool.run(1, {50, 50}, [&](uint32_t, int64_t) {
    others += std::this_thread::get_id() != caller ? 1 : 0;
  });
  CHECK(others == 0 && alone.stalled_seconds == 0, "one thread: the caller's");
}

// With a pool: its second thread is stopped in each run, and later is not.
void check_pool_shrinks_and_grows() {
  using std::chrono::milliseconds;
  ThreadPool pool(2);
  ActiveThreads active(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> stop{true};
  const auto runs_until = [&](int threads) {
    for (int i = 0; i < 20'000 && active.threads() != threads; ++i) {
      std::atomic<int> arrived{0};
      const int present = active.threads();
      active.record(pool.run(present, {present, 8}, [&](uint32_t stage, int64_t) {
        if (stage == 0) {
          ++arrived;
          while (arrived < present) std::this_thread::yield();
          return;
        }
        const bool other = std::this_thread::get_id() != caller;
        std::this_thread::sleep_for(milliseconds(other && stop ? 40 : 1));
      }));
    }
    return active.threads() == threads;
  };
  CHECK(runs_until(1), "a thread that is always waited for is left out");
  stop = false;
  CHECK(runs_until(2), "and takes part again");
}

}  // namespace

int main() {
  check_quiet();
  check_busy();
  check_passing_disturbance();
  check_waits_of_other_causes();
  check_no_gain();
  check_other_work();
  check_pool();
  check_pool_shrinks_and_grows();
  return test::finish("active size");
}
