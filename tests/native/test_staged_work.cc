// Items of many stages on threads that come late, stay away or stop anywhere: each item is done
// exactly once, and behind all of the stages before it.

#include "base/staged_work.h"

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

#include "base/thread_pool.h"
#include "check.h"

using namespace oxibonsai;

namespace {

constexpr uint32_t kStages = 400;

// Of stages with none, one and many items.
std::vector<int64_t> uneven_items() {
  std::vector<int64_t> items;
  for (int64_t s = 0; s < kStages; ++s) items.push_back(s % 7 * s % 50);
  return items;
}

// Counts what is done, and what is begun before its time.
class Record {
 public:
  explicit Record(const std::vector<int64_t>& items) : items_(items) {
    for (const int64_t n : items) done_.emplace_back(static_cast<size_t>(n));
  }

  void operator()(uint32_t stage, int64_t item) {
    for (uint32_t before = stage; before-- > 0;) {
      if (items_[before] == 0) continue;
      for (const auto& count : done_[before]) early_ += count == 0 ? 1 : 0;
      break;
    }
    ++done_[stage][static_cast<size_t>(item)];
  }

  void check(const std::string& who) const {
    CHECK(early_ == 0, who + ": items were begun before the stage before them had ended");
    for (const auto& stage : done_)
      for (const auto& count : stage)
        CHECK(count == 1, who + ": an item was done " + std::to_string(count) + " times");
  }

 private:
  const std::vector<int64_t> items_;
  std::vector<std::vector<std::atomic<int>>> done_;
  std::atomic<int> early_{0};
};

void check_pool(int threads) {
  ThreadPool pool(threads);
  for (int round = 0; round < 20; ++round) {
    Record record(uneven_items());
    pool.run(uneven_items(), [&](uint32_t stage, int64_t item) { record(stage, item); });
    record.check(std::to_string(threads) + " threads");
  }
}

// Nobody waits for a thread that has taken nothing.
void check_threads_that_stay_away() {
  Record record(uneven_items());
  const StagedWork::Work work = [&](uint32_t stage, int64_t item) { record(stage, item); };
  StagedWork staged(5, uneven_items(), work);
  staged.take_part(3);
  record.check("one thread of five");
  staged.take_part(0);  // finds nothing left
  record.check("one thread of five, and one that comes late");
}

// A thread that is stopped in the middle of an item holds up that item's stage only, and whoever
// waits for it goes on when it does.
void check_thread_stopped_in_an_item() {
  std::promise<void> taken, go_on;
  std::atomic<int> done{0};
  std::atomic<bool> stopped{false}, early{false};
  const StagedWork::Work work = [&](uint32_t stage, int64_t) {
    if (stage == 0 && !stopped.exchange(true)) {
      taken.set_value();
      go_on.get_future().wait();
    }
    if (stage == 1 && done < 6) early = true;
    ++done;
  };
  StagedWork staged(2, {6, 6}, work);
  std::thread other([&] { staged.take_part(1); });
  taken.get_future().wait();
  std::thread caller([&] { staged.take_part(0); });
  while (done < 5) std::this_thread::yield();  // the caller does all of the stage that is left
  go_on.set_value();
  caller.join();
  other.join();
  CHECK(done == 12 && !early, "a stage begins when the last item of the one before it is done");
}

// As of a thread that was stopped between two items and finds that the others are far ahead.
void check_stage_long_past() {
  WorkShares shares(2);
  while (shares.next(0, 0, 4) >= 0) continue;
  CHECK(shares.next(5, 0, 4) == 0 && shares.next(5, 1, 4) == 2, "the first items of the fifth");
  CHECK(shares.next(0, 0, 4) == -1, "a stage that has ended has no more items");
  CHECK(shares.next(5, 0, 4) == 1 && shares.next(5, 1, 4) == 3,
        "nor has the late thread taken any");
}

// A thread alone takes its own run first, front to back, then those of the others.
void check_order() {
  WorkShares shares(2);
  std::vector<int64_t> order;
  for (int64_t item; (item = shares.next(0, 1, 6)) >= 0;) order.push_back(item);
  CHECK((order == std::vector<int64_t>{3, 4, 5, 0, 1, 2}), "own items first");
}

void check_error(int threads) {
  ThreadPool pool(threads);
  std::atomic<bool> later{false};
  std::string caught;
  try {
    pool.run({100, 100}, [&](uint32_t stage, int64_t item) {
      if (stage == 1) later = true;
      if (item == 17) throw std::runtime_error("item 17");
    });
  } catch (const std::runtime_error& e) {
    caught = e.what();
  }
  CHECK(caught == "item 17" && !later, "an error ends the work, and the caller gets it");
  std::atomic<int> done{0};
  pool.run({100}, [&](uint32_t, int64_t) { ++done; });
  CHECK(done == 100, "the pool works on after an error");
}

void check_for_each() {
  ThreadPool pool(3);
  for (const int64_t count : {0, 1, 7, 64}) {
    std::vector<std::atomic<int>> done(static_cast<size_t>(count));
    std::atomic<bool> wrong{false};
    pool.for_each(count, 5, [&](int64_t begin, int64_t end) {
      if (begin >= end || end - begin > 5) wrong = true;
      for (int64_t i = begin; i < end; ++i) ++done[static_cast<size_t>(i)];
    });
    CHECK(!wrong, "a piece has one to five items");
    for (const auto& n : done) CHECK(n == 1, "each of " + std::to_string(count) + " items once");
  }
}

}  // namespace

int main() {
  for (const int threads : {1, 2, 3, 5}) {
    check_pool(threads);
    check_error(threads);
  }
  check_threads_that_stay_away();
  check_thread_stopped_in_an_item();
  check_stage_long_past();
  check_order();
  check_for_each();
  return test::finish("staged work");
}
