#pragma once

#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "graph/enum_names.h"
#include "graph/graph.h"
#include "quant/quant_type.h"
#include "recorded/storage.h"

// Reads the graph that `oxibonsai export-web` has described (docs/platforms.md, WebAssembly): its
// weights, and the calls that made it.
//
// A Node is a value of the description, whoever has parsed it, with the methods of Emscripten's
// `val` that are used here; size_of(node) is the number of a list's values or an object's names.
namespace oxibonsai::recorded {
namespace reading {

using graph::Graph;
using graph::Need;
using graph::ValueId;
using graph::Vector;
using graph::WeightPtr;

template <class Node>
size_t count_of(const Node& list) {
  if (!list.isArray())
    throw RequestError("the description of the graph has no list where one belongs");
  return size_of(list);
}

// JavaScript's numbers are doubles: integers up to 2^53.
template <class Node>
int64_t integer(const Node& v) {
  const double number =
      v.isNumber() ? v.template as<double>() : std::numeric_limits<double>::quiet_NaN();
  const auto whole = number >= -0x1p53 && number <= 0x1p53 ? static_cast<int64_t>(number) : 0;
  if (static_cast<double>(whole) != number)
    throw RequestError("the description of the graph has no integer where one belongs");
  return whole;
}

// What the calls of a description refer to.
struct Tables {
  std::shared_ptr<Storage> data;
  graph::Weights weights;
  Graph graph;

  // `bytes` bytes of the data from `at` on.
  const uint8_t* bytes(int64_t at, int64_t bytes) const {
    const auto size = static_cast<int64_t>(data->size());
    if (at < 0 || bytes < 0 || at > size || bytes > size - at)
      throw RequestError("the description of the graph reads past the end of its data");
    return data->data() + at;
  }
};

template <class Node>
WeightPtr read_weight(const Node& v, const Tables& tables) {
  const auto name = v["name"].template as<std::string>();
  const auto type_name = v["type"].template as<std::string>();
  const quant::QuantTraits* type = quant::find_by_name(type_name);
  if (type == nullptr) throw RequestError("no quant type is called " + type_name);
  const int64_t rows = integer(v["rows"]), cols = integer(v["cols"]);
  const int64_t experts = integer(v["experts"]);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (rows < 1 || cols < 1 || experts < 1 || cols > kMost || cols % type->group != 0 ||
      rows > kMost / experts)
    throw RequestError("the matrix " + name + " has no shape that there can be");
  const int64_t row_bytes = quant::row_bytes(type->type, cols);
  if (row_bytes > kMost / (experts * rows))
    throw RequestError("the matrix " + name + " is larger than 2 GiB");
  const uint8_t* data = tables.bytes(integer(v["at"]), experts * rows * row_bytes);
  return std::make_shared<graph::Weight>(name, type->type, rows, cols, data, tables.data, experts);
}

// Sets the fields of an op from the arguments of its call, which come in their order or by name, as
// those of Python's methods do.
template <class Node>
class Arguments {
 public:
  Arguments(std::string method, const Node& call, const Tables& tables)
      : method_(std::move(method)),
        in_order_(call[1]),
        by_name_(call[2]),
        count_(count_of(in_order_)),
        tables_(tables) {}

  Arguments& reads(const char* name, ValueId& id, Need need = graph::kRequired) {
    const Node v = next(name, need);
    if (!is_absent(v)) id = static_cast<ValueId>(integer(v));
    return *this;
  }
  template <class T>
  Arguments& takes(const char* name, T& field, Need need = graph::kRequired) {
    const Node v = next(name, need);
    if (!is_absent(v)) read(v, field);
    return *this;
  }
  Arguments& state(const char* name, int& index) { return takes(name, index); }
  template <class Ids>
  Arguments& makes(const char*, Ids&, size_t = 1) {
    return *this;
  }

  void finish() const {
    if (used_ < count_ || found_by_name_ < size_of(by_name_))
      throw RequestError(method_ +
                         " takes other arguments in this version: export the model again");
  }

 private:
  static bool is_absent(const Node& v) { return v.isUndefined() || v.isNull(); }

  Node next(const char* name, Need need) {
    const bool in_order = used_ < count_;
    const Node found = in_order ? in_order_[used_++] : by_name_[name];
    if (!in_order && !found.isUndefined()) ++found_by_name_;
    if (is_absent(found) && need == graph::kRequired)
      throw RequestError(method_ + " lacks " + name);
    return found;
  }

  void read(const Node& v, bool& field) const { field = v.template as<bool>(); }
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  void read(const Node& v, T& field) const {
    field = static_cast<T>(integer(v));
  }
  template <class T, std::enable_if_t<std::is_enum_v<T>, int> = 0>
  void read(const Node& v, T& field) const {
    graph::set_by_name(v.template as<std::string>(), field);
  }
  void read(const Node& v, float& field) const {
    field = static_cast<float>(v.template as<double>());
  }
  void read(const Node& v, std::string& field) const { field = v.template as<std::string>(); }
  void read(const Node& v, WeightPtr& field) const {
    const int64_t index = integer(v);
    if (index < 0 || index >= static_cast<int64_t>(tables_.weights.size()))
      throw RequestError(method_ + " reads a matrix that the description lacks");
    field = tables_.weights[static_cast<size_t>(index)];
  }
  // A run of float32 numbers in the data.
  void read(const Node& v, Vector& field) const {
    if (v.isNull()) return;
    const int64_t count = integer(v["count"]);
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / sizeof(float);
    if (count > kMost) throw RequestError(method_ + " reads a vector larger than 2 GiB");
    const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
    const auto* floats = reinterpret_cast<const float*>(tables_.bytes(integer(v["at"]), bytes));
    field = std::make_shared<const std::vector<float>>(floats, floats + count);
  }
  template <class T>
  void read(const Node& v, std::vector<T>& field) const {
    for (size_t i = 0; i < count_of(v); ++i) read(v[i], field.emplace_back());
  }
  void read(const Node& v, graph::RowSpace& field) const {
    field = tables_.graph.value(static_cast<ValueId>(integer(v))).rows;
  }
  [[noreturn]] void read(const Node&, graph::ConvWeight&) const { refuse(); }
  [[noreturn]] void read(const Node&, std::shared_ptr<graph::InputSums>&) const { refuse(); }

  [[noreturn]] void refuse() const {
    throw UnsupportedError(method_ + " is not for recorded graphs in this version");
  }

  const std::string method_;
  const Node in_order_, by_name_;
  const size_t count_;
  const Tables& tables_;
  size_t used_ = 0, found_by_name_ = 0;
};

template <class T, class = void>
constexpr bool kIsMethod = false;
template <class T>
constexpr bool kIsMethod<T, std::void_t<decltype(T::kDoc)>> = true;

template <class T, class Node>
bool add_if_named(const std::string& name, const Node& call, Tables* tables) {
  if constexpr (kIsMethod<T>) {
    if (name != T::kName) return false;
    T op;
    Arguments<Node> arguments(name, call, *tables);
    op.fields(arguments);
    arguments.finish();
    tables->graph.add(std::move(op));
    return true;
  }
  return false;
}

template <class Node, class... All>
bool add_op(const std::string& name, const Node& call, Tables* tables,
            const std::variant<All...>*) {
  return (add_if_named<All>(name, call, tables) || ...);
}

template <class Node>
void repeat(const Node& call, Tables* tables) {
  const auto name = call[0].template as<std::string>();
  const Node arguments = call[1];
  if (name == "add_paged_layer") {
    const Node layer = arguments[0];
    tables->graph.add_paged_layer(
        {static_cast<int>(integer(layer[0])), static_cast<int>(integer(layer[1])),
         static_cast<int>(integer(layer[2])), layer[3].template as<bool>()});
  } else if (name == "add_slot") {
    tables->graph.add_slot(integer(arguments[0]));
  } else if (name == "set_output") {
    tables->graph.set_output(arguments[0].template as<std::string>(),
                             static_cast<ValueId>(integer(arguments[1])));
  } else if (!add_op(name, call, tables, static_cast<const graph::OpVariant*>(nullptr))) {
    throw UnsupportedError("this version has no op " + name +
                           ": export the model with its own version");
  }
}

}  // namespace reading

// RequestError where the description does not fit this version or its data; UnsupportedError where
// it has what no language model needs.
template <class Node>
graph::Graph read_graph(const Node& description, const std::shared_ptr<Storage>& data) {
  reading::Tables tables{data, {}, {}};
  const Node weights = description["weights"];
  for (size_t i = 0; i < reading::count_of(weights); ++i)
    tables.weights.push_back(reading::read_weight(weights[i], tables));
  const Node calls = description["calls"];
  for (size_t i = 0; i < reading::count_of(calls); ++i) reading::repeat(calls[i], &tables);
  return std::move(tables.graph);
}

}  // namespace oxibonsai::recorded
