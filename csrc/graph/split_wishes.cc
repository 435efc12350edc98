#include "graph/split_wishes.h"

namespace oxibonsai::graph {
namespace {

// For each process: with so many, one more or less is no matter.
constexpr int64_t kManyUnits = 16;

}  // namespace

bool splits_heads(const PagedLayer& layer, int ranks) {
  return layer.kv_heads >= ranks && !layer.value_in_key;
}

// Readers come behind what they read, so that their own wishes are known first.
SplitWishes::SplitWishes(const Graph& graph, int ranks)
    : graph_(graph), ranks_(ranks), wishes_(graph.values().size()) {
  for (const auto& [name, id] : graph.outputs()) want_whole(id);
  for (auto op = graph.ops().rbegin(); op != graph.ops().rend(); ++op)
    std::visit([this](const auto& o) { collect(o); }, *op);
}

int64_t SplitWishes::units(ValueId id) const {
  const Wish& wish = of(id);
  const int64_t cols = graph_.value(id).cols;
  if (wish.kind == Wish::Kind::kAlike || cols < ranks_) return 0;
  if (wish.kind == Wish::Kind::kUnits && cols % wish.units == 0) return wish.units;
  // Whole tiles of a kernel where all processes then have about as many columns.
  const auto is_even = [&](int64_t width) {
    const int64_t units = cols / width;
    return cols % width == 0 && (units % ranks_ == 0 || units >= kManyUnits * ranks_);
  };
  int64_t width = 64;
  while (width > 1 && !is_even(width)) width /= 2;
  return cols / width;
}

void SplitWishes::want(ValueId id, const Wish& wish) {
  if (id == kNoValue) return;
  Wish& all = wishes_[static_cast<size_t>(id)];
  if (all.kind == Wish::Kind::kUnits && wish.kind == Wish::Kind::kUnits) {
    if (all.units != wish.units) all = {Wish::Kind::kWhole, 0};
    return;
  }
  if (wish.kind > all.kind) all = wish;
}

template <class T>
void SplitWishes::collect(const T& op) {
  for (const ValueId id : inputs_of(Op(op)))
    if (id != kNoValue) want_whole(id);
}

template <class T>
void SplitWishes::collect_by_column(const T& op) {
  const Wish& out = of(op.out);
  want(op.x, out.kind == Wish::Kind::kAlike ? Wish{Wish::Kind::kWhole, 0} : out);
}

void SplitWishes::collect(const Activate& op) { collect_by_column(op); }
void SplitWishes::collect(const Scale& op) { collect_by_column(op); }
void SplitWishes::collect(const Xielu& op) { collect_by_column(op); }
void SplitWishes::collect(const Clamp& op) { collect_by_column(op); }
void SplitWishes::collect(const Softcap& op) { collect_by_column(op); }
void SplitWishes::collect(const AddVector& op) { collect_by_column(op); }

// Their result has fewer columns than what they read, or fewer rows, and is put together instead.
void SplitWishes::collect(const Gated& op) {
  const Wish& out = of(op.out);
  const Wish wish = out.kind == Wish::Kind::kUnits ? out : Wish{Wish::Kind::kAny, 0};
  want(op.gate, wish);
  want(op.up, wish);
}

void SplitWishes::collect(const Combine& op) {
  want(op.x, {Wish::Kind::kAny, 0});
  want_whole(op.places);
  want_whole(op.weights);
}

template <class T>
void SplitWishes::collect_norm(const T& op) {
  const Wish& out = of(op.out);
  if (out.kind == Wish::Kind::kUnits && op.groups % out.units == 0) return want(op.x, out);
  want_whole(op.x);
}
void SplitWishes::collect(const RmsNorm& op) { collect_norm(op); }
void SplitWishes::collect(const LayerNorm& op) { collect_norm(op); }

void SplitWishes::collect(const Rope& op) {
  want_whole(op.table);
  const Wish& out = of(op.out);
  const bool heads =
      out.kind == Wish::Kind::kUnits && graph_.value(op.x).cols / out.units % op.head_dim == 0;
  heads ? want(op.x, out) : want_whole(op.x);
}

void SplitWishes::collect(const StoreKv& op) {
  const PagedLayer& layer = graph_.state().paged[static_cast<size_t>(op.layer)];
  for (const ValueId id : {op.k, op.v})
    splits_heads(layer, ranks_) ? want(id, {Wish::Kind::kUnits, layer.kv_heads}) : want_whole(id);
}

void SplitWishes::collect(const Attend& op) {
  const PagedLayer& layer = graph_.state().paged[static_cast<size_t>(op.layer)];
  splits_heads(layer, ranks_) ? want(op.q, {Wish::Kind::kUnits, layer.kv_heads}) : want_whole(op.q);
}

// A router has few rows: a message would cost more than it saves.
void SplitWishes::collect(const Route& op) { want(op.scores, {Wish::Kind::kAlike, 0}); }

}  // namespace oxibonsai::graph
