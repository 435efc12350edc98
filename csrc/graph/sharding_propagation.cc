#include "graph/sharding_propagation.h"

namespace oxibonsai::graph {
namespace {

// For each process: with so many, one more or less is no matter.
constexpr int64_t kManyUnits = 16;

}  // namespace

bool splits_heads(const PagedLayer& layer, int ranks) {
  return layer.kv_heads >= ranks && !layer.value_in_key;
}

namespace {

int64_t if_enough(int64_t units, int ranks) { return units >= ranks ? units : 0; }

}  // namespace

int64_t scan_units(const Graph&, const GatedDelta& op, int ranks) {
  return if_enough(op.key_heads, ranks);
}

int64_t scan_units(const Graph& graph, const Mamba2Scan& op, int ranks) {
  return if_enough(op.groups > 1 ? op.groups : graph.value(op.time_step).cols, ranks);
}

int64_t scan_units(const Graph& graph, const MambaScan& op, int ranks) {
  const int64_t cols = graph.value(op.x).cols;
  return cols % kScanColumns == 0 ? if_enough(cols / kScanColumns, ranks) : 0;
}

int64_t scan_units(const Graph& graph, const Wkv7Scan& op, int ranks) {
  return if_enough(graph.value(op.r).cols / op.head_dim, ranks);
}

int64_t query_units(const PagedLayer& layer, const Attend& op, int ranks) {
  if (splits_heads(layer, ranks)) return layer.kv_heads;
  return layer.kv_heads == 1 ? if_enough(op.heads, ranks) : 0;
}

// Backwards: readers come behind what they read, so that their own requirements are known first.
ShardingPropagation::ShardingPropagation(const Graph& graph, int ranks)
    : graph_(graph),
      ranks_(ranks),
      of_scans_(graph.values().size()),
      requirements_(graph.values().size()) {
  for (const Op& op : graph.ops()) op.visit([this](const auto& o) { find_scans(o); });
  for (const auto& [name, id] : graph.outputs()) require_gathered(id);
  for (auto op = graph.ops().rbegin(); op != graph.ops().rend(); ++op)
    op->visit([this](const auto& o) { collect(o); });
}

int64_t ShardingPropagation::units(ValueId id) const {
  const Requirement& requirement = of(id);
  const int64_t cols = graph_.value(id).cols;
  if (requirement.kind == Requirement::Kind::kReplicated || cols < ranks_) return 0;
  if (requirement.kind == Requirement::Kind::kUnits && cols % requirement.units == 0)
    return requirement.units;
  // Whole tiles of a kernel where all processes then have about as many columns.
  const auto is_even = [&](int64_t width) {
    const int64_t units = cols / width;
    return cols % width == 0 && (units % ranks_ == 0 || units >= kManyUnits * ranks_);
  };
  int64_t width = 64;
  while (width > 1 && !is_even(width)) width /= 2;
  return cols / width;
}

void ShardingPropagation::require(ValueId id, const Requirement& requirement) {
  if (id == kNoValue) return;
  Requirement& all = requirements_[static_cast<size_t>(id)];
  if (all.kind == Requirement::Kind::kUnits && requirement.kind == Requirement::Kind::kUnits) {
    if (all.units != requirement.units) all = {Requirement::Kind::kGathered, 0};
    return;
  }
  if (requirement.kind > all.kind) all = requirement;
}

template <class T>
void ShardingPropagation::find_scans(const T& op) {
  const auto units = [this](ValueId id) -> int64_t& { return of_scans_[static_cast<size_t>(id)]; };
  if constexpr (kIsScan<T>) units(op.out) = scan_units(graph_, op, ranks_);
  if constexpr (std::is_same_v<T, GatedDelta>)
    if (value_runs(op, graph_.value(op.alpha).cols) > 1) units(op.out) = 0;
  if constexpr (std::is_same_v<T, RmsNorm> || std::is_same_v<T, LayerNorm>) {
    const int64_t of_x = units(op.x);
    if (of_x != 0 && op.groups % of_x == 0) units(op.out) = of_x;
  }
}

template <class T>
std::enable_if_t<kReadsAllColumns<T>> ShardingPropagation::collect(const T& op) {
  for (const ValueId id : inputs_of(op)) require_gathered(id);
}

template <class T>
void ShardingPropagation::collect_by_column(const T& op) {
  const Requirement& out = of(op.out);
  require(op.x, out.kind == Requirement::Kind::kReplicated
                    ? Requirement{Requirement::Kind::kGathered, 0}
                    : out);
}

template <class T>
std::enable_if_t<kIsByColumn<T>> ShardingPropagation::collect(const T& op) {
  collect_by_column(op);
}
void ShardingPropagation::collect(const AddVector& op) { collect_by_column(op); }

// Their result has fewer columns than what they read, or fewer rows, and is put together instead.
void ShardingPropagation::collect(const Gated& op) {
  const Requirement& out = of(op.out);
  Requirement requirement =
      out.kind == Requirement::Kind::kUnits ? out : Requirement{Requirement::Kind::kAny, 0};
  // Beside what a scan has made: the same columns.
  for (const ValueId id : {op.gate, op.up})
    if (const int64_t units = of_scans_[static_cast<size_t>(id)]; units != 0)
      requirement = {Requirement::Kind::kUnits, units};
  require(op.gate, requirement);
  require(op.up, requirement);
}

void ShardingPropagation::collect(const Combine& op) {
  require(op.x, {Requirement::Kind::kAny, 0});
  require_gathered(op.places);
  require_gathered(op.weights);
}

template <class T>
void ShardingPropagation::collect_norm(const T& op) {
  const Requirement& out = of(op.out);
  if (out.kind == Requirement::Kind::kUnits && op.groups % out.units == 0)
    return require(op.x, out);
  require_gathered(op.x);
}
void ShardingPropagation::collect(const RmsNorm& op) { collect_norm(op); }
void ShardingPropagation::collect(const LayerNorm& op) { collect_norm(op); }

void ShardingPropagation::collect(const Rope& op) {
  require_gathered(op.table);
  const Requirement& out = of(op.out);
  const bool heads = out.kind == Requirement::Kind::kUnits &&
                     graph_.value(op.x).cols / out.units % op.head_dim == 0;
  heads ? require(op.x, out) : require_gathered(op.x);
}

void ShardingPropagation::collect(const StoreKv& op) {
  const PagedLayer& layer = graph_.state().paged[static_cast<size_t>(op.layer)];
  for (const ValueId id : {op.k, op.v})
    splits_heads(layer, ranks_) ? require(id, {Requirement::Kind::kUnits, layer.kv_heads})
                                : require_gathered(id);
}

void ShardingPropagation::collect(const Attend& op) {
  const PagedLayer& layer = graph_.state().paged[static_cast<size_t>(op.layer)];
  const int64_t units = query_units(layer, op, ranks_);
  units != 0 ? require(op.q, {Requirement::Kind::kUnits, units}) : require_gathered(op.q);
}

// What latent attention makes its queries with goes by heads, if their reader does.
void ShardingPropagation::collect(const HeadLinear& op) {
  const Requirement& out = of(op.out);
  const bool heads = out.kind == Requirement::Kind::kUnits && out.units == op.weight->experts();
  heads ? require(op.x, out) : require_gathered(op.x);
}

void ShardingPropagation::collect(const JoinHeads& op) {
  const Requirement& out = of(op.out);
  const bool heads = out.kind == Requirement::Kind::kUnits && op.heads % out.units == 0;
  for (const ValueId id : {op.a, op.b}) heads ? require(id, out) : require_gathered(id);
}

void ShardingPropagation::collect(const SelectColumns& op) {
  const Requirement& out = of(op.out);
  const bool heads =
      out.kind == Requirement::Kind::kUnits && graph_.value(op.x).cols / op.period % out.units == 0;
  heads ? require(op.x, out) : require_gathered(op.x);
}

// A router has few rows: a message would cost more than it saves.
void ShardingPropagation::collect(const Route& op) {
  require(op.scores, {Requirement::Kind::kReplicated, 0});
}

}  // namespace oxibonsai::graph
