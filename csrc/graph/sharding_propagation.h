#pragma once

#include <type_traits>
#include <vector>

#include "graph/graph.h"

namespace oxibonsai::graph {

// Whether the processes split a layer's heads of keys and values; else each keeps all of them.
bool splits_heads(const PagedLayer& layer, int ranks);

// Units into which the heads of queries are divided, at least one for each process; 0: every
// process has all of them. They go with their keys and values, or all read the same ones.
int64_t query_units(const PagedLayer& layer, const Attend& op, int ranks);

// Units of heads into which a scan and its state are divided, at least one for each process; 0:
// every process has all of it.
int64_t scan_units(const Graph& graph, const GatedDelta& op, int ranks);
int64_t scan_units(const Graph& graph, const Mamba2Scan& op, int ranks);
int64_t scan_units(const Graph& graph, const MambaScan& op, int ranks);
int64_t scan_units(const Graph& graph, const Wkv7Scan& op, int ranks);

template <class T, class... All>
constexpr bool kIsAnyOf = (std::is_same_v<T, All> || ...);

// Every op has a rule that says which columns each process computes. These are replicated: every
// process computes the whole result from whole inputs. An op that is neither here nor among the
// rules of ShardingPropagation::collect() and Partitioner::put() does not compile.
template <class T>
constexpr bool kIsReplicated =
    kIsAnyOf<T, Embed, EmbedPositions, Input, InsertRows, SelectOutputs, RoundInt8, Hadamard,
             Observe, RopeTable, PrepareHeads, AttendLocal, Route, Dispatch, GateRows, Conv1d,
             TransposeHeads, JoinRows, SplitRows, Sinusoids, Modulate, AddGated, GroupMoments,
             Conv2d, MixParts, MatchRms, GaussianTopK, Gather, Add>;

// Ops of one input x in which each column depends on the same column of x and on nothing else.
template <class T>
constexpr bool kIsByColumn = kIsAnyOf<T, Activate, Scale, Xielu, Clamp, Softcap>;

template <class T>
constexpr bool kIsScan = kIsAnyOf<T, GatedDelta, Mamba2Scan, MambaScan, Wkv7Scan>;

// Ops that read all columns of their inputs; Route says more besides.
template <class T>
constexpr bool kReadsAllColumns =
    kIsReplicated<T> || kIsScan<T> || kIsAnyOf<T, Linear, ExpertLinear>;

// Runs of value heads, each of which has one for each key head where these are tiled. Several have
// to be put together behind the scan: a process has a part of each.
inline int64_t value_runs(const GatedDelta& op, int64_t heads) {
  return op.tiled ? heads / op.key_heads : 1;
}

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
  void find_scans(const T& op);

  template <class T>
  std::enable_if_t<kReadsAllColumns<T>> collect(const T& op);
  template <class T>
  std::enable_if_t<kIsByColumn<T>> collect(const T& op);
  template <class T>
  void collect_by_column(const T& op);
  template <class T>
  void collect_norm(const T& op);
  void collect(const AddVector& op);
  void collect(const Gated& op);
  void collect(const Combine& op);
  void collect(const RmsNorm& op);
  void collect(const LayerNorm& op);
  void collect(const Rope& op);
  void collect(const StoreKv& op);
  void collect(const Attend& op);
  void collect(const HeadLinear& op);
  void collect(const JoinHeads& op);
  void collect(const SelectColumns& op);
  void collect(const Route& op);

  const Graph& graph_;
  const int ranks_;
  // Of what scans make, and norms of that: the units that each process has a part of; else 0.
  std::vector<int64_t> of_scans_;
  std::vector<Requirement> requirements_;
};

}  // namespace oxibonsai::graph
