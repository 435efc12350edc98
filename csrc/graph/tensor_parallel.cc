#include "graph/tensor_parallel.h"

#include <set>
#include <utility>

#include "base/check.h"
#include "graph/sharding_propagation.h"

namespace oxibonsai::graph {
namespace {

struct Range {
  int64_t first, last;
};

// What has become of a value of the whole graph: all of its columns, or those of this rank, or
// both.
struct ShardedValue {
  ValueId whole = kNoValue;
  ValueId part = kNoValue;
  int64_t units = 0;  // into which the columns of `part` are divided
};

class Partitioner {
 public:
  Partitioner(const Graph& graph, Sharding* sharding)
      : from_(graph),
        sharding_(sharding),
        ranks_(sharding->exchange()->ranks()),
        rank_(sharding->exchange()->rank()),
        propagation_(graph, ranks_),
        values_(graph.values().size()) {
    for (const PagedLayer& layer : from_.state().paged) {
      PagedLayer own = layer;
      if (splits_heads(layer, ranks_))
        own.kv_heads = static_cast<int>(width(layer.kv_heads, layer.kv_heads));
      to_.add_paged_layer(own);
    }
    std::vector<int64_t> slots = from_.state().slot;
    for (const Op& op : from_.ops()) op.visit([&](const auto& o) { narrow_slot(o, &slots); });
    for (const int64_t floats : slots) to_.add_slot(floats);
  }

  Graph run() {
    for (const Op& op : from_.ops()) op.visit([this](const auto& o) { put(o); });
    std::vector<ValueId> results;
    for (const auto& [name, id] : from_.outputs()) results.push_back(id);
    gather(results);
    for (const auto& [name, id] : from_.outputs()) to_.set_output(name, value(id).whole);
    return std::move(to_);
  }

 private:
  ShardedValue& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  bool is_split(ValueId id) { return value(id).whole == kNoValue; }

  // Columns of a rank, of `cols` in equal units of which each rank has neighbouring ones.
  Range range(int64_t cols, int64_t units, int rank) const {
    const int64_t width = cols / units;
    return {units * rank / ranks_ * width, units * (rank + 1) / ranks_ * width};
  }
  Range own(int64_t cols, int64_t units) const { return range(cols, units, rank_); }
  int64_t width(int64_t cols, int64_t units) const {
    const Range r = own(cols, units);
    return r.last - r.first;
  }

  // Puts together what this rank has only a part of, one message for all of a row space.
  void gather(const std::vector<ValueId>& ids) {
    std::vector<ValueId> left;
    std::set<ValueId> seen;
    for (const ValueId id : ids)
      if (id != kNoValue && is_split(id) && seen.insert(id).second) left.push_back(id);
    while (!left.empty()) {
      const RowSpace rows = from_.value(left.front()).rows;
      Gather op;
      op.exchange = sharding_->exchange();
      std::vector<ValueId> put_together, others;
      for (const ValueId id : left) {
        if (from_.value(id).rows != rows) {
          others.push_back(id);
          continue;
        }
        put_together.push_back(id);
        op.x.push_back(value(id).part);
        op.columns.emplace_back();
        for (int rank = 0; rank < ranks_; ++rank) {
          const Range r = range(from_.value(id).cols, value(id).units, rank);
          op.columns.back().push_back(r.last - r.first);
        }
      }
      const std::vector<ValueId> made = to_.add(op);
      for (size_t i = 0; i < made.size(); ++i) value(put_together[i]).whole = made[i];
      left = std::move(others);
    }
  }

  ValueId whole(ValueId id) {
    if (id == kNoValue) return id;
    gather({id});
    return value(id).whole;
  }

  // This rank's columns of a value, in these units.
  ValueId part(ValueId id, int64_t units) {
    ShardedValue& m = value(id);
    if (m.part != kNoValue && m.units == units) return m.part;
    const int64_t cols = from_.value(id).cols;
    const Range r = own(cols, units);
    const ValueId made = select(whole(id), r.first, r.last - r.first, cols);
    if (value(id).part == kNoValue) {
      value(id).part = made;
      value(id).units = units;
    }
    return made;
  }

  Vector own_part(const Vector& v, int64_t units) const {
    if (v == nullptr) return v;
    const Range r = own(static_cast<int64_t>(v->size()), units);
    return std::make_shared<const std::vector<float>>(v->begin() + r.first, v->begin() + r.last);
  }

  WeightPtr own_rows(const WeightPtr& w, int64_t units) {
    const Range r = own(w->rows(), units);
    return sharding_->rows(w, r.first, r.last);
  }

  // Adds an op whose inputs are in place already.
  void add_whole(Op op, const std::vector<ValueId>& outputs) {
    const std::vector<ValueId> made = to_.add(std::move(op));
    for (size_t i = 0; i < made.size(); ++i) value(outputs[i]).whole = made[i];
  }

  void add_part(Op op, ValueId out, int64_t units) {
    value(out).part = to_.add(std::move(op)).front();
    value(out).units = units;
  }

  template <class T>
  std::enable_if_t<kIsReplicated<T>> put(const T& op) {
    replicate(op);
  }
  // Computes an op in every process.
  void replicate(Op op) {
    const std::vector<ValueId> outputs = outputs_of(op);
    gather(inputs_of(op));
    for (ValueId* id : inputs_in(&op))
      if (*id != kNoValue) *id = whole(*id);
    add_whole(std::move(op), outputs);
  }

  // An op of one input whose columns are each computed from the same one.
  template <class T, class Narrow>
  void put_by_column(T op, const Narrow& narrow) {
    if (!is_split(op.x)) return replicate(op);
    const int64_t units = value(op.x).units;
    const ValueId out = op.out;
    op.x = value(op.x).part;
    narrow(&op, units);
    add_part(op, out, units);
  }
  template <class T>
  void put_by_column(const T& op) {
    put_by_column(op, [](T*, int64_t) {});
  }
  template <class T>
  std::enable_if_t<kIsByColumn<T>> put(const T& op) {
    put_by_column(op);
  }
  void put(const AddVector& op) {
    put_by_column(op,
                  [this](AddVector* o, int64_t units) { o->vector = own_part(o->vector, units); });
  }

  void put(Gated op) {
    if (!is_split(op.gate) && !is_split(op.up)) return replicate(op);
    const int64_t units = value(is_split(op.gate) ? op.gate : op.up).units;
    const ValueId out = op.out;
    op.gate = part(op.gate, units);
    op.up = part(op.up, units);
    add_part(op, out, units);
  }

  // Groups of neighbouring columns, each computed from its own.
  template <class Norm>
  void put_norm(const Norm& op) {
    if (!is_split(op.x) || op.groups % value(op.x).units != 0) return replicate(op);
    const int64_t cols = from_.value(op.x).cols;
    put_by_column(op, [&](Norm* o, int64_t units) {
      o->groups = static_cast<int>(width(op.groups, units));
      if (static_cast<int64_t>(op.weight->size()) == cols) o->weight = own_part(op.weight, units);
      if constexpr (std::is_same_v<Norm, LayerNorm>)
        if (op.bias != nullptr && static_cast<int64_t>(op.bias->size()) == cols)
          o->bias = own_part(op.bias, units);
    });
  }
  void put(const RmsNorm& op) { put_norm(op); }
  void put(const LayerNorm& op) { put_norm(op); }

  void put(Rope op) {
    const ShardedValue& x = value(op.x);
    if (!is_split(op.x) || from_.value(op.x).cols / x.units % op.head_dim != 0)
      return replicate(op);
    const ValueId out = op.out;
    const int64_t units = x.units;
    op.table = whole(op.table);
    op.x = x.part;
    add_part(op, out, units);
  }

  void put(StoreKv op) {
    const PagedLayer& layer = from_.state().paged[static_cast<size_t>(op.layer)];
    if (!splits_heads(layer, ranks_)) return replicate(op);
    op.k = part(op.k, layer.kv_heads);
    op.v = part(op.v, layer.kv_heads);
    to_.add(op);
  }

  void put(Attend op) {
    const PagedLayer& layer = from_.state().paged[static_cast<size_t>(op.layer)];
    const int64_t units = query_units(layer, op, ranks_);
    if (units == 0) return replicate(op);
    const ValueId out = op.out;
    const int heads = op.heads;
    op.q = part(op.q, units);
    op.heads = static_cast<int>(width(op.heads, units));
    op.slopes = own_part(op.slopes, units);
    op.sinks = own_part(op.sinks, units);
    op.position_bias = own_part(op.position_bias, units);
    if (op.pattern.block_size > 0)
      op.pattern.first_head = static_cast<int>(own(heads, units).first);
    add_part(op, out, units);
  }

  // Scans, by heads: each has a state of its own. What they read was put together for the
  // convolution before them, whose state is small and replicated.

  // A rank's part of the state of a scan: that of its heads, which all are as large.
  template <class T>
  void narrow_slot(const T& op, std::vector<int64_t>* slots) const {
    if constexpr (kIsScan<T>) {
      int64_t& floats = (*slots)[static_cast<size_t>(op.slot)];
      if (const int64_t units = scan_units(op); units != 0) floats = width(floats, units);
    }
  }

  template <class T>
  int64_t scan_units(const T& op) const {
    return graph::scan_units(from_, op, ranks_);
  }

  ValueId select(ValueId x, int64_t first, int64_t count, int64_t period) {
    SelectColumns op;
    op.x = x;
    op.first = first;
    op.count = count;
    op.period = period;
    return to_.add(op).front();
  }

  ValueId join(ValueId a, ValueId b) {
    JoinHeads op;
    op.a = a;
    op.b = b;
    op.heads = 1;
    return to_.add(op).front();
  }

  // This rank's key heads, and the value heads that read them. Where these are tiled, a run of
  // value heads has one for each key head, and the rank has neighbouring ones of each run.
  void put(GatedDelta op) {
    const int64_t units = scan_units(op);
    if (units == 0) return replicate(op);
    const int64_t keys = int64_t{op.key_heads} * op.key_dim;
    const int64_t heads = from_.value(op.alpha).cols;
    const int64_t runs = value_runs(op, heads);
    const int64_t period = heads / runs;
    const Range r = own(period, units);
    const int64_t count = r.last - r.first, dim = op.value_dim;
    const auto own_heads = [&](const Vector& v) {
      auto mine = std::make_shared<std::vector<float>>();
      for (auto run = v->begin(); run != v->end(); run += period)
        mine->insert(mine->end(), run + r.first, run + r.last);
      return mine;
    };
    gather({op.qkv, op.alpha, op.beta});
    const ValueId qkv = whole(op.qkv), out = op.out;
    const int64_t cols = from_.value(op.qkv).cols;
    const Range k = own(keys, units);
    const ValueId values = select(qkv, 2 * keys, cols - 2 * keys, cols);
    op.qkv = join(select(qkv, k.first, k.last - k.first, cols),
                  select(qkv, keys + k.first, k.last - k.first, cols));
    op.qkv = join(op.qkv, select(values, r.first * dim, count * dim, period * dim));
    op.alpha = select(whole(op.alpha), r.first, count, period);
    op.beta = select(whole(op.beta), r.first, count, period);
    op.dt_bias = own_heads(op.dt_bias);
    op.decay = own_heads(op.decay);
    op.key_heads = static_cast<int>(width(op.key_heads, units));
    if (runs == 1) return add_part(op, out, units);
    value(out).whole = gather_runs(to_.add(op).front(), runs, period * dim, units);
  }

  // Puts runs of columns together, of each of which this rank has its part: one message for all.
  ValueId gather_runs(ValueId parts, int64_t runs, int64_t cols, int64_t units) {
    const int64_t mine = width(cols, units);
    Gather op;
    op.exchange = sharding_->exchange();
    for (int64_t run = 0; run < runs; ++run) {
      op.x.push_back(select(parts, run * mine, mine, runs * mine));
      op.columns.emplace_back();
      for (int rank = 0; rank < ranks_; ++rank) {
        const Range r = range(cols, units, rank);
        op.columns.back().push_back(r.last - r.first);
      }
    }
    const std::vector<ValueId> made = to_.add(op);
    ValueId all = made.front();
    for (size_t run = 1; run < made.size(); ++run) all = join(all, made[run]);
    return all;
  }

  void put(Mamba2Scan op) {
    const int64_t units = scan_units(op);
    if (units == 0) return replicate(op);
    gather({op.xbc, op.time_step});
    const ValueId xbc = whole(op.xbc), out = op.out;
    const int64_t cols = from_.value(op.xbc).cols, inner = from_.value(out).cols;
    const int64_t state = int64_t{op.groups} * op.state_dim;
    const Range x = own(inner, units);
    // A single group is every head's.
    const Range g = op.groups > 1 ? own(state, units) : Range{0, state};
    const int64_t count = g.last - g.first;
    const ValueId bc = join(select(xbc, inner + g.first, count, cols),
                            select(xbc, inner + state + g.first, count, cols));
    op.xbc = join(select(xbc, x.first, x.last - x.first, cols), bc);
    op.time_step = part(op.time_step, units);
    op.dt_bias = own_part(op.dt_bias, units);
    op.decay = own_part(op.decay, units);
    op.skip = own_part(op.skip, units);
    op.groups = static_cast<int>(count / op.state_dim);
    add_part(op, out, units);
  }

  void put(MambaScan op) {
    const int64_t units = scan_units(op);
    if (units == 0) return replicate(op);
    gather({op.x, op.time_step, op.b, op.c});
    const ValueId out = op.out;
    op.x = part(op.x, units);
    op.time_step = part(op.time_step, units);
    op.b = whole(op.b);
    op.c = whole(op.c);
    op.dt_bias = own_part(op.dt_bias, units);
    op.skip = own_part(op.skip, units);
    op.decay = own_part(op.decay, units);
    add_part(op, out, units);
  }

  void put(Wkv7Scan op) {
    const int64_t units = scan_units(op);
    if (units == 0) return replicate(op);
    gather(inputs_of(op));
    const ValueId out = op.out;
    for (ValueId* id : {&op.r, &op.w, &op.k, &op.v, &op.kk, &op.a}) *id = part(*id, units);
    add_part(op, out, units);
  }

  void put(HeadLinear op) {
    const int64_t heads = op.weight->experts();
    if (!is_split(op.x) || value(op.x).units != heads) return replicate(op);
    const ValueId out = op.out;
    const Range r = own(heads, heads);
    op.x = value(op.x).part;
    op.weight = sharding_->heads(op.weight, r.first, r.last);
    add_part(op, out, heads);
  }

  void put(JoinHeads op) {
    const int64_t units = value(is_split(op.a) ? op.a : op.b).units;
    if ((!is_split(op.a) && !is_split(op.b)) || op.heads % units != 0) return replicate(op);
    const ValueId out = op.out;
    op.a = part(op.a, units);
    op.b = part(op.b, units);
    op.heads = static_cast<int>(width(op.heads, units));
    add_part(op, out, units);
  }

  // Of each head the same columns.
  void put(const SelectColumns& op) {
    const bool heads =
        is_split(op.x) && from_.value(op.x).cols / op.period % value(op.x).units == 0;
    heads ? put_by_column(op) : replicate(op);
  }

  // Splits the rows of each matrix, as what reads the result requires.
  void put(const Linear& op) {
    Linear replicated, split;
    std::vector<ValueId> copied, gathered;
    std::vector<std::pair<ValueId, int64_t>> parts;  // value, units
    gather({op.x, op.add});
    replicated.x = split.x = whole(op.x);
    for (size_t i = 0; i < op.weights.size(); ++i) {
      const ValueId out = op.out[i];
      const int64_t units = propagation_.units(out);
      Linear& into = units == 0 ? replicated : split;
      const bool biased = !op.biases.empty();
      if (units == 0) {
        copied.push_back(out);
        into.weights.push_back(op.weights[i]);
        if (biased) into.biases.push_back(op.biases[i]);
      } else {
        parts.emplace_back(out, units);
        into.weights.push_back(own_rows(op.weights[i], units));
        if (biased) into.biases.push_back(own_part(op.biases[i], units));
        if (propagation_.is_gathered(out)) gathered.push_back(out);
      }
    }
    if (!copied.empty()) {
      replicated.add = whole(op.add);
      add_whole(replicated, copied);
    }
    if (parts.empty()) return;
    if (op.add != kNoValue) split.add = part(op.add, parts.front().second);
    const std::vector<ValueId> made = to_.add(split);
    for (size_t i = 0; i < made.size(); ++i)
      value(parts[i].first) = {kNoValue, made[i], parts[i].second};
    gather(gathered);
  }

  void put(ExpertLinear op) {
    const int64_t units = propagation_.units(op.out);
    if (units == 0) return replicate(op);
    const ValueId out = op.out;
    gather({op.x, op.panels});
    op.x = whole(op.x);
    op.panels = whole(op.panels);
    if (op.bias != nullptr) op.bias = own_expert_bias(*op.bias, op.weight->rows(), units);
    op.weight = own_rows(op.weight, units);
    add_part(op, out, units);
    if (propagation_.is_gathered(out)) whole(out);
  }

  Vector own_expert_bias(const std::vector<float>& bias, int64_t rows, int64_t units) const {
    const Range r = own(rows, units);
    auto mine = std::make_shared<std::vector<float>>();
    for (auto expert = bias.begin(); expert != bias.end(); expert += rows)
      mine->insert(mine->end(), expert + r.first, expert + r.last);
    return mine;
  }

  void put(Combine op) {
    if (!is_split(op.x)) return replicate(op);
    const int64_t units = value(op.x).units;
    const ValueId out = op.out;
    op.x = value(op.x).part;
    op.places = whole(op.places);
    op.weights = whole(op.weights);
    add_part(op, out, units);
    if (propagation_.is_gathered(out)) whole(out);
  }

  const Graph& from_;
  Sharding* const sharding_;
  const int ranks_, rank_;
  const ShardingPropagation propagation_;
  std::vector<ShardedValue> values_;
  Graph to_;
};

}  // namespace

Sharding::Sharding(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {
  if (exchange_ == nullptr) throw RequestError("a graph is shared with somebody");
}

WeightPtr Sharding::rows(const WeightPtr& whole, int64_t first, int64_t last) {
  WeightPtr& part = rows_[{whole, first}];
  if (part == nullptr || part->rows() != last - first) part = Weight::slice(whole, first, last);
  return part;
}

WeightPtr Sharding::heads(const WeightPtr& whole, int64_t first, int64_t last) {
  WeightPtr& part = heads_[{whole, first}];
  if (part == nullptr) part = Weight::slice_experts(whole, first, last);
  return part;
}

Graph Sharding::share(const Graph& graph) { return Partitioner(graph, this).run(); }

}  // namespace oxibonsai::graph
