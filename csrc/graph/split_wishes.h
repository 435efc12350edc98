#pragma once

#include <vector>

#include "graph/graph.h"

namespace oxibonsai::graph {

// Whether the processes split a layer's heads of keys and values; else each keeps all of them.
bool splits_heads(const PagedLayer& layer, int ranks);

// How the values of a graph are best split over processes, as what reads them wants: in units of
// whole heads for attention, in any columns for an activation, or not at all.
class SplitWishes {
 public:
  SplitWishes(const Graph& graph, int ranks);

  // Units into which the columns of what a linear layer makes are divided, at least one for each
  // process; 0: each process makes all of them.
  int64_t units(ValueId id) const;
  // Whether something reads all columns.
  bool wants_whole(ValueId id) const { return of(id).kind == Wish::Kind::kWhole; }

 private:
  struct Wish {
    enum class Kind : uint8_t {
      kNone,   // nothing reads it
      kAny,    // any columns
      kUnits,  // whole units
      kWhole,  // all columns
      kAlike,  // all columns, and every process makes them itself
    };
    Kind kind = Kind::kNone;
    int64_t units = 0;
  };

  const Wish& of(ValueId id) const { return wishes_[static_cast<size_t>(id)]; }
  void want(ValueId id, const Wish& wish);
  void want_whole(ValueId id) { want(id, {Wish::Kind::kWhole, 0}); }

  template <class T>
  void collect(const T& op);
  template <class T>
  void collect_by_column(const T& op);
  template <class T>
  void collect_norm(const T& op);
  void collect(const Activate& op);
  void collect(const Scale& op);
  void collect(const Xielu& op);
  void collect(const Clamp& op);
  void collect(const Softcap& op);
  void collect(const AddVector& op);
  void collect(const Gated& op);
  void collect(const Combine& op);
  void collect(const RmsNorm& op);
  void collect(const LayerNorm& op);
  void collect(const Rope& op);
  void collect(const StoreKv& op);
  void collect(const Attend& op);
  void collect(const Route& op);

  const Graph& graph_;
  const int ranks_;
  std::vector<Wish> wishes_;
};

}  // namespace oxibonsai::graph
