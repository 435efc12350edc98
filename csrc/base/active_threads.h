#pragma once

#include <cstdint>

namespace oxibonsai {

// What one run of a pool took.
struct PoolRun {
  int64_t items = 0;
  double seconds = 0;
  // Of all threads together: they waited for one in the middle of an item, longer than threads
  // that have their cores wait for each other.
  double stalled_seconds = 0;
};

// How many of a pool's threads take part in the next run of the same kind. Where waits show that
// other processes have taken cores, runs with a thread fewer are tried, and kept if those that
// follow with as many as before are not faster: beside runs before the trial, a thread fewer would
// win whenever the other process ends meanwhile. Later a thread more is tried, and kept if it is
// faster. Trials that fail become rarer. Without such waits all threads take part.
class ActiveThreads {
 public:
  explicit ActiveThreads(int most) : most_(most), threads_(most) {}

  int threads() const { return threads_; }

  // Of a run with threads().
  void record(const PoolRun& run);

 private:
  // kAfterFewer: as many threads as before the trial, to compare it with.
  enum class Trial { kNone, kFewer, kAfterFewer, kMore };

  // Runs one after the other with the same threads and about as many items.
  struct Window {
    int64_t runs = 0;
    PoolRun sum;
  };

  bool other_work(const PoolRun& run) const;
  void forget_window();
  void judge(double pace);
  void end_trial(bool kept);
  void choose_trial();
  void start(Trial trial);

  const int most_;
  int threads_;
  Window window_;
  Trial trial_ = Trial::kNone;
  // Of the last window outside a trial: seconds an item, items a run.
  double pace_ = 0;
  int64_t usual_items_ = 0;
  double pace_of_fewer_ = 0;
  int patience_ = 2;  // windows from one trial to the next
  int waited_ = 0;    // windows since the last trial
  bool fewer_failed_ = false;
};

}  // namespace oxibonsai
