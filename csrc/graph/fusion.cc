#include "graph/fusion.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace oxibonsai::graph {
namespace {

// Ops that all devices let write int8 directly. The float row then never leaves the cache.
template <class T>
constexpr bool kRoundsItself = false;
template <>
constexpr bool kRoundsItself<RmsNorm> = true;
template <>
constexpr bool kRoundsItself<LayerNorm> = true;
template <>
constexpr bool kRoundsItself<Gated> = true;
template <>
constexpr bool kRoundsItself<Activate> = true;
template <>
constexpr bool kRoundsItself<Xielu> = true;
template <>
constexpr bool kRoundsItself<Modulate> = true;
template <>
constexpr bool kRoundsItself<Hadamard> = true;
template <>
constexpr bool kRoundsItself<Dispatch> = true;

constexpr int64_t kGroup = 32;  // values that are rounded together

// Who makes and reads each value.
class Uses {
 public:
  explicit Uses(const LoweredGraph& g) : readers_(g.values.size()), maker_(g.values.size(), -1) {
    for (size_t i = 0; i < g.ops.size(); ++i) {
      for (const ValueId id : inputs_of(g.ops[i])) readers_[static_cast<size_t>(id)].push_back(i);
      for (const ValueId id : outputs_of(g.ops[i]))
        maker_[static_cast<size_t>(id)] = static_cast<int64_t>(i);
    }
    for (const auto& [name, id] : g.outputs)
      readers_[static_cast<size_t>(id)].push_back(g.ops.size());
  }

  // Indices of ops, that past the last for an output of the graph.
  const std::vector<size_t>& readers(ValueId id) const { return readers_[static_cast<size_t>(id)]; }
  bool has_one_reader(ValueId id) const { return readers(id).size() == 1; }
  int64_t maker(ValueId id) const { return maker_[static_cast<size_t>(id)]; }

 private:
  std::vector<std::vector<size_t>> readers_;
  std::vector<int64_t> maker_;  // -1: none
};

void erase(LoweredGraph* g, const std::vector<bool>& gone) {
  std::vector<Op> kept;
  for (size_t i = 0; i < g->ops.size(); ++i)
    if (!gone[i]) kept.push_back(std::move(g->ops[i]));
  g->ops = std::move(kept);
}

// Whether attention's heads are whole groups, each of which then lies within one head.
bool has_whole_groups(const LoweredGraph& g, const Op& op) {
  if (const auto* local = std::get_if<AttendLocal>(&op)) return local->head_dim % kGroup == 0;
  const auto* attend = std::get_if<Attend>(&op);
  if (attend == nullptr) return false;
  return g.values[static_cast<size_t>(attend->out)].cols / attend->heads % kGroup == 0;
}

// Finds what PrepareHeads takes the place of.
class HeadFusion {
 public:
  HeadFusion(LoweredGraph* g, const StateSpec& state)
      : g_(g), state_(state), uses_(*g), gone_(g->ops.size()) {}

  void run() {
    for (size_t i = 0; i < g_->ops.size(); ++i)
      if (const auto* store = std::get_if<StoreKv>(&g_->ops[i])) fuse(*store, i);
    erase(g_, gone_);
  }

 private:
  // The rotation of q or k and the norm before it.
  struct Heads {
    const Rope* rope = nullptr;
    const RmsNorm* norm = nullptr;  // null: none
    size_t rope_at = 0, norm_at = 0;

    ValueId x() const { return norm != nullptr ? norm->x : rope->x; }
    Vector weight() const { return norm != nullptr ? norm->weight : nullptr; }
    float eps() const { return norm != nullptr ? norm->eps : 0.0f; }
  };

  template <class T>
  const T* maker(ValueId id) const {
    const int64_t at = uses_.maker(id);
    return at < 0 ? nullptr : std::get_if<T>(&g_->ops[static_cast<size_t>(at)]);
  }

  // What makes `rotated`, of heads of so many dims.
  std::optional<Heads> heads(ValueId rotated, int dim) const {
    Heads h;
    h.rope = maker<Rope>(rotated);
    if (h.rope == nullptr || h.rope->head_dim != dim) return std::nullopt;
    h.rope_at = static_cast<size_t>(uses_.maker(rotated));
    const auto* norm = maker<RmsNorm>(h.rope->x);
    if (norm == nullptr || !uses_.has_one_reader(norm->out)) return h;
    if (g_->values[static_cast<size_t>(norm->x)].cols != int64_t{dim} * norm->groups) return h;
    h.norm = norm;
    h.norm_at = static_cast<size_t>(uses_.maker(norm->out));
    return h;
  }

  // What attends to the layer first behind store_kv.
  const Attend* reader_of(int layer, size_t store_at) const {
    for (size_t i = store_at + 1; i < g_->ops.size(); ++i)
      if (const auto* attend = std::get_if<Attend>(&g_->ops[i]);
          attend != nullptr && attend->layer == layer)
        return attend;
    return nullptr;
  }

  // Whether all that reads the value comes behind an op.
  bool read_behind(ValueId id, size_t at) const {
    const std::vector<size_t>& readers = uses_.readers(id);
    return std::all_of(readers.begin(), readers.end(), [at](size_t reader) { return reader > at; });
  }

  void fuse(const StoreKv& store, size_t at) {
    const PagedLayer& layer = state_.paged[static_cast<size_t>(store.layer)];
    const Attend* attend = reader_of(store.layer, at);
    if (attend == nullptr || layer.value_in_key || !uses_.has_one_reader(store.k)) return;
    const auto k = heads(store.k, layer.key_dim), q = heads(attend->q, layer.key_dim);
    if (!k || !q || q->rope_at > at || !read_behind(attend->q, at)) return;
    if (k->rope->table != q->rope->table || k->rope->interleaved != q->rope->interleaved) return;
    PrepareHeads op;
    op.q = q->x();
    op.k = k->x();
    op.v = store.v;
    op.table = q->rope->table;
    op.q_weight = q->weight();
    op.k_weight = k->weight();
    op.q_eps = q->eps();
    op.k_eps = k->eps();
    op.interleaved = q->rope->interleaved;
    op.layer = store.layer;
    op.out = attend->q;
    for (const Heads* h : {&*q, &*k}) {
      gone_[h->rope_at] = true;
      if (h->norm != nullptr) gone_[h->norm_at] = true;
    }
    g_->ops[at] = std::move(op);
  }

  LoweredGraph* const g_;
  const StateSpec& state_;
  const Uses uses_;
  std::vector<bool> gone_;
};

}  // namespace

bool rounds_itself(const Op& op) {
  return op.visit([](const auto& o) { return kRoundsItself<std::decay_t<decltype(o)>>; });
}

void fuse_rounding(LoweredGraph* g, bool attention_rounds) {
  const Uses uses(*g);
  std::vector<bool> gone(g->ops.size());
  for (size_t i = 0; i < g->ops.size(); ++i) {
    const auto* round = std::get_if<RoundInt8>(&g->ops[i]);
    if (round == nullptr || !uses.has_one_reader(round->x) || uses.maker(round->x) < 0) continue;
    Op& source = g->ops[static_cast<size_t>(uses.maker(round->x))];
    if (!rounds_itself(source) && !(attention_rounds && has_whole_groups(*g, source))) continue;
    *outputs_in(&source).front() = round->out;
    gone[i] = true;
  }
  erase(g, gone);
}

void fuse_heads(LoweredGraph* g, const StateSpec& state) { HeadFusion(g, state).run(); }

}  // namespace oxibonsai::graph
