#include "graph/lowering.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"
#include "graph/fusion.h"

namespace oxibonsai::graph {
namespace {

// Appends the ops of a graph with their inputs rounded where integer weights read them.
class RoundInserter {
 public:
  explicit RoundInserter(LoweredGraph* out) : out_(out) {}

  void add(const Op& op) {
    if (const auto* linear = std::get_if<Linear>(&op)) return add_linear(*linear);
    Op added = op;
    if (auto* experts = std::get_if<ExpertLinear>(&added))
      if (experts->weight->integer()) experts->x = rounded(experts->x);
    out_->ops.push_back(std::move(added));
  }

 private:
  void add_linear(const Linear& op) {
    Linear parts[2];  // of float weights, of integer ones
    for (size_t i = 0; i < op.weights.size(); ++i) {
      Linear& part = parts[op.weights[i]->integer() ? 1 : 0];
      part.weights.push_back(op.weights[i]);
      part.out.push_back(op.out[i]);
      if (!op.biases.empty()) part.biases.push_back(op.biases[i]);
    }
    for (const bool integer : {false, true}) {
      Linear& part = parts[integer ? 1 : 0];
      if (part.weights.empty()) continue;
      part.add = op.add;
      part.x = integer ? rounded(op.x) : op.x;
      out_->ops.push_back(std::move(part));
    }
  }

  ValueId rounded(ValueId x) {
    const auto [found, fresh] = rounded_.try_emplace(x, static_cast<ValueId>(out_->values.size()));
    if (fresh) {
      const Value& v = out_->values[static_cast<size_t>(x)];
      out_->values.push_back({v.rows, v.cols, ValueType::kInt8});
      out_->ops.push_back(RoundInt8{x, found->second});
    }
    return found->second;
  }

  LoweredGraph* const out_;
  std::map<ValueId, ValueId> rounded_;
};

// Two vectors: std::stable_partition of a variant of all ops takes a compiler half a minute.
void move_to_front_what_reads_nothing(std::vector<Op>* ops) {
  std::vector<Op> readers, sorted;
  for (Op& op : *ops) (inputs_of(op).empty() ? sorted : readers).push_back(std::move(op));
  for (Op& op : readers) sorted.push_back(std::move(op));
  *ops = std::move(sorted);
}

// What shares buffers. Those of rounded values hold their parts at distances that depend on the
// columns, and not all of them lookup tables: each width has its own.
using BufferKind = std::tuple<int, int, std::string, int64_t, ValueType>;

BufferKind kind_of(const Value& v) {
  const int64_t cols = v.type == ValueType::kInt8 ? v.cols : 0;
  return {static_cast<int>(v.rows.kind), v.rows.k, v.rows.name, cols, v.type};
}

// The value that an op may replace by its result, element by element.
ValueId replaceable(const Op& op) {
  if (const auto* rope = std::get_if<Rope>(&op)) return rope->x;
  if (const auto* activate = std::get_if<Activate>(&op)) return activate->x;
  if (const auto* heads = std::get_if<PrepareHeads>(&op)) return heads->q;
  return kNoValue;
}

// Gives every value a buffer.
class BufferPlanner {
 public:
  explicit BufferPlanner(LoweredGraph* g) : g_(g), last_use_(g->values.size(), -1) {
    g_->buffer_of.assign(g_->values.size(), -1);
    for (size_t i = 0; i < g_->ops.size(); ++i) {
      for (const ValueId id : inputs_of(g_->ops[i])) use(id, i);
      for (const ValueId id : outputs_of(g_->ops[i])) use(id, i);
    }
    for (const auto& [name, id] : g_->outputs) use(id, g_->ops.size());
  }

  void run() {
    for (const auto& [name, id] : g_->outputs) buffer_of(id) = fresh(value(id));
    for (const auto& [name, id] : g_->inputs)
      if (buffer_of(id) < 0) buffer_of(id) = fresh(value(id));
    for (size_t i = 0; i < g_->ops.size(); ++i) place(g_->ops[i], i);
  }

 private:
  void use(ValueId id, size_t op) { last_use_[static_cast<size_t>(id)] = static_cast<int64_t>(op); }
  int& buffer_of(ValueId id) { return g_->buffer_of[static_cast<size_t>(id)]; }
  const Value& value(ValueId id) const { return g_->values[static_cast<size_t>(id)]; }
  bool ends_at(ValueId id, size_t op) const {
    return last_use_[static_cast<size_t>(id)] == static_cast<int64_t>(op);
  }

  int fresh(const Value& v) {
    g_->buffers.push_back({v.rows, v.cols, v.type});
    return static_cast<int>(g_->buffers.size()) - 1;
  }

  // A buffer that is free: the narrowest one with room, else the widest, which then grows.
  int take(const Value& v) {
    std::vector<int>& free = free_[kind_of(v)];
    if (free.empty()) return fresh(v);
    const auto cols = [this](int i) { return g_->buffers[static_cast<size_t>(i)].cols; };
    const auto found = std::min_element(free.begin(), free.end(), [&](int a, int b) {
      const bool fits = cols(a) >= v.cols, other_fits = cols(b) >= v.cols;
      return fits != other_fits ? fits : fits ? cols(a) < cols(b) : cols(a) > cols(b);
    });
    const int buffer = *found;
    free.erase(found);
    int64_t& width = g_->buffers[static_cast<size_t>(buffer)].cols;
    width = std::max(width, v.cols);
    return buffer;
  }

  bool is_input(ValueId id) const {
    return std::any_of(g_->inputs.begin(), g_->inputs.end(),
                       [&](const auto& input) { return input.second == id; });
  }

  void place(const Op& op, size_t index) {
    const ValueId old = replaceable(op);
    if (old != kNoValue && ends_at(old, index) && !is_input(old)) {
      const ValueId out = outputs_of(op).front();
      if (buffer_of(out) < 0 && value(out).type == value(old).type) {
        buffer_of(out) = buffer_of(old);
        moved_ = old;
      }
    }
    for (const ValueId id : outputs_of(op))
      if (buffer_of(id) < 0) buffer_of(id) = take(value(id));
    std::vector<ValueId> done = inputs_of(op);
    const std::vector<ValueId> made = outputs_of(op);
    done.insert(done.end(), made.begin(), made.end());
    std::sort(done.begin(), done.end());
    done.erase(std::unique(done.begin(), done.end()), done.end());
    for (const ValueId id : done)
      if (ends_at(id, index) && id != moved_ && !is_input(id))
        free_[kind_of(value(id))].push_back(buffer_of(id));
    moved_ = kNoValue;
  }

  LoweredGraph* const g_;
  std::vector<int64_t> last_use_;
  std::map<BufferKind, std::vector<int>> free_;
  ValueId moved_ = kNoValue;  // its buffer went on to another value
};

}  // namespace

LoweredGraph lower(const Graph& graph, const Fusions& fusions) {
  if (graph.outputs().empty()) throw RequestError("a graph needs at least one output");
  LoweredGraph g;
  g.values = graph.values();
  g.outputs = graph.outputs();
  RoundInserter inserter(&g);
  for (const Op& op : graph.ops()) {
    inserter.add(op);
    if (const auto* input = std::get_if<Input>(&op)) g.inputs.emplace_back(input->name, input->out);
  }
  if (fusions.prepare_heads) fuse_heads(&g, graph.state());
  fuse_rounding(&g, fusions.attention_rounds);
  move_to_front_what_reads_nothing(&g.ops);
  BufferPlanner(&g).run();
  for (const auto& [name, id] : g.outputs)
    g.output_columns.emplace_back(name, g.values[static_cast<size_t>(id)].cols);
  for (const Buffer& b : g.buffers) {
    const auto found = std::find(g.spaces.begin(), g.spaces.end(), b.rows);
    g.space_of.push_back(static_cast<int>(found - g.spaces.begin()));
    if (found == g.spaces.end()) g.spaces.push_back(b.rows);
  }
  return g;
}

}  // namespace oxibonsai::graph
