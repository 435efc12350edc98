#pragma once

#include <memory>

#include "graph/check.h"

namespace oxibonsai::graph {

// How the processes that share a graph's rows hand each other what each has computed.
class Exchange {
 public:
  Exchange(int ranks, int rank) : ranks_(ranks), rank_(rank) {}
  virtual ~Exchange() = default;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  // Collective: `floats` floats of every rank, in the order of ranks. It may throw, in which case
  // the step fails.
  virtual void all_gather(const float* own, float* all, int64_t floats) = 0;

 private:
  const int ranks_, rank_;
};

// Columns that each rank has of some values, put together: one message for all of them.
struct Gather {
  static constexpr const char* kName = "gather";
  std::vector<ValueId> x;  // of one row space
  // Of each x, how many columns each rank has, in the order of ranks.
  std::vector<std::vector<int64_t>> columns;
  std::shared_ptr<Exchange> exchange;
  std::vector<ValueId> out;

  template <class F>
  void fields(F& f) {
    for (ValueId& id : x) f.reads("x", id);
    f.makes("out", out, x.size());
  }

  // Floats a row that every rank sends: of each x as many as the rank with the most has.
  int64_t sent_columns() const;
};

std::vector<Value> infer(const Gather& op, const Checker& c);

}  // namespace oxibonsai::graph
