#include "base/active_threads.h"

#include <algorithm>
#include <cstdlib>

namespace oxibonsai {
namespace {

// Some thirty turns that the system gives to processes which share a core.
constexpr double kWindowSeconds = 0.1;
// Of a window's time. Below it nothing can be gained that is worth a trial.
constexpr double kStalled = 0.1;
// The time that another thread has to gain: at the same speed the core is better left to others.
constexpr double kGain = 0.03;
// Windows until the next trial: after one that changed something, and after many that did not.
constexpr int kPatience = 8, kLongestPatience = 64;
// Runs are alike whose items differ by at most one in so many.
constexpr int64_t kAlike = 16;

// Whether a thread more is worth its core; paces in seconds an item.
bool faster(double more, double fewer) { return more < fewer * (1 - kGain); }

}  // namespace

// Than that of the window; than that of the window before, where a trial begins.
bool ActiveThreads::other_work(const PoolRun& run) const {
  if (window_.runs == 0 && trial_ == Trial::kNone) return false;
  const int64_t usual = window_.runs > 0 ? window_.sum.items / window_.runs : usual_items_;
  return std::abs(run.items - usual) > usual / kAlike;
}

void ActiveThreads::record(const PoolRun& run) {
  if (most_ == 1) return;
  if (other_work(run)) forget_window();
  ++window_.runs;
  window_.sum.items += run.items;
  window_.sum.seconds += run.seconds;
  window_.sum.stalled_seconds += run.stalled_seconds;
  if (window_.sum.seconds < kWindowSeconds || window_.sum.items == 0) return;
  const double pace = window_.sum.seconds / static_cast<double>(window_.sum.items);
  if (trial_ != Trial::kNone) {
    judge(pace);
  } else {
    pace_ = pace;
    usual_items_ = window_.sum.items / window_.runs;
    if (++waited_ > patience_) choose_trial();
  }
  window_ = Window();
}

// Other work has come before the window was full: a trial of it has nothing to be compared with.
void ActiveThreads::forget_window() {
  window_ = Window();
  if (trial_ == Trial::kFewer) ++threads_;
  if (trial_ == Trial::kMore) --threads_;
  trial_ = Trial::kNone;
}

void ActiveThreads::judge(double pace) {
  switch (trial_) {
    case Trial::kFewer:
      ++threads_;
      pace_of_fewer_ = pace;
      trial_ = Trial::kAfterFewer;
      return;
    case Trial::kAfterFewer: {
      const bool kept = !faster(pace, pace_of_fewer_);
      if (kept) --threads_;
      return end_trial(kept);
    }
    case Trial::kMore: {
      const bool kept = faster(pace, pace_);
      if (!kept) --threads_;
      return end_trial(kept);
    }
    case Trial::kNone:
      return;
  }
}

void ActiveThreads::end_trial(bool kept) {
  fewer_failed_ = trial_ != Trial::kMore && !kept;
  patience_ = kept ? kPatience : std::min(2 * patience_, kLongestPatience);
  waited_ = 0;
  trial_ = Trial::kNone;
}

void ActiveThreads::choose_trial() {
  const bool stalled = window_.sum.stalled_seconds > kStalled * window_.sum.seconds;
  const bool can_grow = threads_ < most_;
  if (stalled && threads_ > 1 && !(fewer_failed_ && can_grow))
    start(Trial::kFewer);
  else if (can_grow)
    start(Trial::kMore);
}

void ActiveThreads::start(Trial trial) {
  trial_ = trial;
  threads_ += trial == Trial::kFewer ? -1 : 1;
}

}  // namespace oxibonsai
