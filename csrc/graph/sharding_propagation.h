#pragma once

#include <vector>

#include "graph/graph.h"

namespace oxibonsai::graph {

// Whether the processes split a layer's heads of keys and values; else each keeps all of them.
bool splits_heads(const PagedLayer& layer, int ranks);

// Which columns of each value a process should compute, propagated from what reads them backwards
// to what makes them: units of whole heads for attention, any columns for an activation, or all.
class ShardingPropagation {
 public:
  ShardingPropagation(const Graph& graph, int ranks);

  // Units into which the columns of what a linear layer makes are divided, at least one for each
  // process; 0: replicated, each process makes all of them.
  int64_t units(ValueId id) const;
  // Whether something reads all columns.
  bool is_gathered(ValueId id) const { return of(id).kind == Requirement::Kind::kGathered; }

 private:
  struct Requirement {
    enum class Kind : uint8_t {
      kNone,        // nothing reads it
      kAny,         // any columns
      kUnits,       // whole units
      kGathered,    // all columns, put together from all processes
      kReplicated,  // all columns, computed in every process
    };
    Kind kind = Kind::kNone;
    int64_t units = 0;
  };

  const Requirement& of(ValueId id) const { return requirements_[static_cast<size_t>(id)]; }
  void require(ValueId id, const Requirement& requirement);
  void require_gathered(ValueId id) { require(id, {Requirement::Kind::kGathered, 0}); }

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
  std::vector<Requirement> requirements_;
};

}  // namespace oxibonsai::graph
