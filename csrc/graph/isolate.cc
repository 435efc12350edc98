#include "graph/isolate.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/fusion.h"
#include "quant/quant_type.h"

namespace oxibonsai::graph {
namespace {

// Rows of a slice: more than a tile of any device, and a multiple of it, but for the last rows.
constexpr int64_t kSliceRows = 192;

std::string type_of(const Weight& w) { return quant::traits(w.type()).name; }

// What tells two ops of a kind apart besides their widths: their constants, but of floats only
// whether they are zero, and of vectors only the size.
class Constants {
 public:
  std::string text;

  Constants& reads(const char*, ValueId&, Need = kRequired) { return *this; }
  Constants& state(const char*, int&) { return *this; }
  template <class Ids>
  Constants& makes(const char*, Ids&, size_t = 1) {
    return *this;
  }
  template <class T>
  Constants& takes(const char*, T& constant, Need = kRequired) {
    text += " " + told(constant);
    return *this;
  }

 private:
  template <class T>
  static std::string told(T constant) {
    return std::to_string(static_cast<int64_t>(constant));
  }
  static std::string told(float constant) { return constant != 0.0f ? "1" : "0"; }
  static std::string told(const Vector& v) { return std::to_string(v != nullptr ? v->size() : 0); }
  static std::string told(const WeightPtr& w) {
    return type_of(*w) + " " + std::to_string(w->experts());
  }
  static std::string told(const std::vector<int32_t>& indices) {
    std::string all;
    for (const int32_t i : indices) all += " " + std::to_string(i);
    return all;
  }
  // Names of inputs and of segments, which an isolated op has not; row spaces, of ops that are not
  // compared, as are these.
  static std::string told(const std::string&) { return ""; }
  static std::string told(const RowSpace&) { return ""; }
  static std::string told(const Weights&) { return ""; }
  static std::string told(const std::vector<Vector>&) { return ""; }
  static std::string told(const std::shared_ptr<InputSums>&) { return ""; }
  static std::string told(const ConvWeight&) { return ""; }
};

std::string constants_of(Op op) {
  Constants constants;
  op.visit([&](auto& o) { o.fields(constants); });
  return constants.text;
}

// Builds the graph around one op: inputs in place of what other ops make, and no more state than it
// reads.
class Isolation {
 public:
  Isolation(const Graph& from, const Op& op) : from_(from) {
    if (op.visit([](const auto& o) { return kUsesPages<std::decay_t<decltype(o)>>; }))
      for (const PagedLayer& l : from.state().paged) graph_.add_paged_layer(l);
    if (op.visit([](const auto& o) { return kUsesSlot<std::decay_t<decltype(o)>>; }))
      for (const int64_t n : from.state().slot) graph_.add_slot(n);
  }

  void add(Op op) {
    add_needed(op);
    // The rows of an isolated op are one sequence and one segment.
    if (auto* local = std::get_if<AttendLocal>(&op)) local->segments.clear();
    if (auto* attend = std::get_if<Attend>(&op)) attend->part = KeyPart::kAll;
    const std::vector<ValueId> before = outputs_of(op);
    for (ValueId* id : inputs_in(&op)) *id = moved(*id);
    last_ = graph_.add(std::move(op));
    for (size_t i = 0; i < last_.size() && i < before.size(); ++i) moved_[before[i]] = last_[i];
  }

  Graph finish() {
    int count = 0;
    for (const ValueId id : last_)
      if (graph_.value(id).type == ValueType::kF32)
        graph_.set_output("out" + std::to_string(count++), id);
    return std::move(graph_);
  }

 private:
  // What an op cannot do without.
  void add_needed(const Op& op) {
    if (const auto* dispatch = std::get_if<Dispatch>(&op)) add_maker(dispatch->panels);
    if (const auto* experts = std::get_if<ExpertLinear>(&op)) add_maker(experts->panels);
    if (const auto* combine = std::get_if<Combine>(&op)) add_maker(combine->places);
    if (const auto* attend = std::get_if<Attend>(&op)) add_store(attend->layer);
  }

  void add_store(int layer) {
    for (const Op& other : from_.ops()) {
      const auto* store = std::get_if<StoreKv>(&other);
      if (store != nullptr && store->layer == layer) return add(*store);
    }
  }

  void add_maker(ValueId id) {
    for (const Op& other : from_.ops()) {
      const std::vector<ValueId> made = outputs_of(other);
      if (std::find(made.begin(), made.end(), id) != made.end()) return add(other);
    }
  }

  ValueId moved(ValueId id) {
    const auto found = moved_.find(id);
    if (found != moved_.end()) return found->second;
    const Value& v = from_.value(id);
    Input input;
    input.name = "in" + std::to_string(moved_.size());
    // Rows of an input of its own, or of outputs, come from nowhere here.
    input.rows = v.rows.kind == RowSpace::Kind::kRouted ? v.rows : tokens();
    input.cols = v.cols;
    return moved_[id] = graph_.add(input).front();
  }

  const Graph& from_;
  Graph graph_;
  std::map<ValueId, ValueId> moved_;
  std::vector<ValueId> last_;
};

// Whether the parity check compares an op as it is.
bool is_compared_whole(const Op& op) {
  // Cross-attention reads what another pass has stored; only the keys that it sees are others.
  if (const auto* attend = std::get_if<Attend>(&op)) return attend->part != KeyPart::kEncoded;
  // A copy or a sum, a copy, goes with attention, makes nothing, copies of other processes' values.
  if (is_any<Input, InsertRows, SelectOutputs, StoreKv, Observe, Gather>(op)) return false;
  // Rows of several spaces, which the parity check does not make: tests compare them.
  if (is_any<JoinRows, SplitRows, Modulate, AddGated, GroupMoments, Conv2d>(op)) return false;
  return !is_any<Linear>(op);  // in parts
}

class Collector {
 public:
  explicit Collector(const Graph& graph) : graph_(graph) {}

  void collect(const Op& op) {
    if (const auto* linear = std::get_if<Linear>(&op)) {
      parts(*linear);
      with_readers(*linear);
    }
    if (is_compared_whole(op)) whole(op);
  }

  std::vector<IsolatedOp> take() { return std::move(result_); }

 private:
  // A graph for each matrix, of its first rows and of its last.
  void parts(const Linear& op) {
    for (size_t i = 0; i < op.weights.size(); ++i) {
      const WeightPtr& w = op.weights[i];
      const bool biased = !op.biases.empty() && op.biases[i] != nullptr;
      const std::string key = "linear " + type_of(*w) + " " + std::to_string(w->cols()) +
                              (biased ? " bias" : "") + (op.add != kNoValue ? " add" : "");
      if (!seen_.insert(key).second) continue;
      const int64_t tail = std::max<int64_t>(0, (w->rows() - 1) / kSliceRows * kSliceRows);
      for (const int64_t first : std::set<int64_t>{0, tail}) {
        const int64_t last = std::min(w->rows(), first + kSliceRows);
        Linear part;
        part.x = op.x;
        part.weights = {Weight::slice(w, first, last)};
        if (biased)
          part.biases = {std::make_shared<const std::vector<float>>(op.biases[i]->begin() + first,
                                                                    op.biases[i]->begin() + last)};
        part.out = {kNoValue};
        Isolation isolation(graph_, op);
        if (op.add != kNoValue && last - first == w->rows()) part.add = op.add;
        isolation.add(part);
        result_.push_back(
            {"linear layer, " + type_of(*w) + " (" + w->name() + ")", isolation.finish()});
      }
    }
  }

  // The first rows of integer matrices with the norm or the gated activation that reads them.
  void with_readers(const Linear& op) {
    for (const WeightPtr& w : op.weights)
      if (!w->integer()) return;
    for (const Op& other : graph_.ops()) {
      const auto* norm = std::get_if<RmsNorm>(&other);
      if (norm != nullptr && norm->x == op.out[0] && op.weights.size() == 1 && norm->groups == 1)
        with_norm(op, *norm);
      const auto* gated = std::get_if<Gated>(&other);
      if (gated != nullptr && op.out.size() == 2 && gated->gate == op.out[0] &&
          gated->up == op.out[1] && op.weights[0]->rows() == op.weights[1]->rows())
        with_reader(op, *gated, std::to_string(static_cast<int>(gated->activation)));
    }
  }

  void with_norm(const Linear& op, RmsNorm norm) {
    const auto rows = std::min<size_t>(norm.weight->size(), static_cast<size_t>(kSliceRows));
    norm.weight = std::make_shared<const std::vector<float>>(
        norm.weight->begin(), norm.weight->begin() + static_cast<std::ptrdiff_t>(rows));
    with_reader(op, norm, "");
  }

  template <class Reader>
  void with_reader(const Linear& op, const Reader& reader, const std::string& constants) {
    std::string key = Reader::kName + constants;
    Linear part;
    part.x = op.x;
    part.out = op.out;
    for (size_t i = 0; i < op.weights.size(); ++i) {
      const WeightPtr& w = op.weights[i];
      const int64_t rows = std::min(w->rows(), kSliceRows);
      const bool biased = !op.biases.empty() && op.biases[i] != nullptr;
      key += " " + type_of(*w) + " " + std::to_string(w->cols()) + (biased ? " bias" : "");
      part.weights.push_back(Weight::slice(w, 0, rows));
      if (!op.biases.empty())
        part.biases.push_back(biased ? std::make_shared<const std::vector<float>>(
                                           op.biases[i]->begin(), op.biases[i]->begin() + rows)
                                     : nullptr);
    }
    if (!seen_.insert(key).second) return;
    Isolation isolation(graph_, op);
    isolation.add(part);
    isolation.add(reader);
    result_.push_back({"linear layer and " + std::string(Reader::kName) + ", " +
                           type_of(*op.weights[0]) + " (" + op.weights[0]->name() + ")",
                       isolation.finish()});
  }

  void whole(const Op& op) {
    std::string key = name_of(op) + constants_of(op);
    for (const ValueId id : inputs_of(op)) key += " " + std::to_string(graph_.value(id).cols);
    for (const ValueId id : outputs_of(op)) key += " " + std::to_string(graph_.value(id).cols);
    if (!seen_.insert(key).second) return;
    Isolation isolation(graph_, op);
    isolation.add(op);
    result_.push_back({name_of(op), isolation.finish()});
    if (rounds_itself(op)) rounded(op);
  }

  // The same op with the first rows of an integer matrix behind it, for which it rounds its result.
  void rounded(const Op& op) {
    const ValueId made = outputs_of(op).front();
    for (const Op& other : graph_.ops()) {
      const auto* reader = std::get_if<Linear>(&other);
      if (reader == nullptr || reader->x != made || !reader->weights[0]->integer()) continue;
      const WeightPtr& w = reader->weights[0];
      Linear part;
      part.x = made;
      part.weights = {Weight::slice(w, 0, std::min(w->rows(), kSliceRows))};
      part.out = {kNoValue};
      Isolation isolation(graph_, op);
      isolation.add(op);
      isolation.add(part);
      result_.push_back({std::string(name_of(op)) + ", rounded to int8", isolation.finish()});
      return;
    }
  }

  const Graph& graph_;
  std::set<std::string> seen_;
  std::vector<IsolatedOp> result_;
};

}  // namespace

std::vector<IsolatedOp> isolate_ops(const Graph& graph) {
  Collector collector(graph);
  for (const Op& op : graph.ops()) collector.collect(op);
  return collector.take();
}

}  // namespace oxibonsai::graph
