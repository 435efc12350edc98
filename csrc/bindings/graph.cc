#include "bindings/graph_class.h"

#include <algorithm>

#include "bindings/register.h"
#include "graph/isolate.h"
#include "graph/stages.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using graph::Graph;
using graph::WeightPtr;

void register_value(py::module_& m) {
  py::class_<PyValue>(m, "Value", "A matrix that a graph computes: [rows of a row space, cols].")
      .def_property_readonly("cols", [](const PyValue& v) { return v.value.cols; })
      .def_property_readonly("rows", [](const PyValue& v) { return to_string(v.value.rows); })
      .def("__eq__", [](const PyValue& a, const PyValue& b) { return a.id == b.id; })
      .def("__hash__", [](const PyValue& v) { return v.id; });
}

// (name, graph, its inputs as (name, row space, columns)) of each op.
py::list isolated(const Graph& g) {
  py::list all;
  for (const graph::IsolatedOp& op : graph::isolate_ops(g)) {
    py::list inputs;
    for (const graph::Op& o : op.graph.ops())
      if (const auto* input = std::get_if<graph::Input>(&o))
        inputs.append(py::make_tuple(
            input->name, input->rows.kind == graph::RowSpace::Kind::kRouted ? input->rows.k : 1,
            input->cols));
    all.append(py::make_tuple(op.name, std::make_shared<Graph>(op.graph), inputs));
  }
  return all;
}

// (graph, its layers of the cache, its entries of the slots) of each stage.
py::list cut(const Graph& g, const std::vector<size_t>& points) {
  py::list all;
  for (graph::Stage& s : graph::cut(g, points))
    all.append(py::make_tuple(std::make_shared<Graph>(std::move(s.graph)), s.paged, s.slots));
  return all;
}

std::vector<std::vector<std::string>> op_matrices(const Graph& g) {
  std::vector<std::vector<std::string>> all;
  for (const graph::Op& op : g.ops()) {
    std::vector<std::string> names;
    for (const WeightPtr& w : graph::matrices_of(op)) names.push_back(w->name());
    all.push_back(std::move(names));
  }
  return all;
}

// (name, row space, columns)
using Matrix = std::tuple<std::string, std::string, int64_t>;

std::vector<Matrix> inputs(const Graph& g) {
  std::vector<Matrix> all;
  for (const graph::Op& op : g.ops())
    if (const auto* input = std::get_if<graph::Input>(&op))
      all.emplace_back(input->name, to_string(input->rows), input->cols);
  return all;
}

std::vector<Matrix> results(const Graph& g) {
  std::vector<Matrix> all;
  for (const auto& [name, id] : g.outputs())
    all.emplace_back(name, to_string(g.value(id).rows), g.value(id).cols);
  return all;
}

std::vector<std::string> output_names(const Graph& g) {
  std::vector<std::string> all;
  for (const auto& [name, id] : g.outputs()) all.push_back(name);
  return all;
}

void register_paged_layer(py::module_& m) {
  using graph::PagedLayer;
  py::class_<PagedLayer>(m, "PagedLayer", "Keys and values that a layer keeps for each position.")
      .def(py::init([](int kv_heads, int key_dim, int value_dim, bool value_in_key) {
             return PagedLayer{kv_heads, key_dim, value_dim, value_in_key};
           }),
           py::arg("kv_heads"), py::arg("key_dim"), py::arg("value_dim"),
           py::arg("value_in_key") = false)
      .def_readonly("kv_heads", &PagedLayer::kv_heads)
      .def_readonly("key_dim", &PagedLayer::key_dim)
      .def_readonly("value_dim", &PagedLayer::value_dim)
      .def_readonly("value_in_key", &PagedLayer::value_in_key,
                    "A value is the first value_dim floats of its key.")
      .def("__eq__", &PagedLayer::operator==, py::is_operator());
}

void register_graph_class(py::module_& m) {
  GraphClass c(m, "Graph", "A forward pass; its ops are methods that check and return values.");
  c.def(py::init<>())
      .def("add_paged_layer", &Graph::add_paged_layer, py::arg("layer"),
           "Declares keys and values that are kept for each position; returns the layer's index.")
      .def("add_slot", &Graph::add_slot, py::arg("floats"),
           "Declares recurrent state; returns the entry's index.")
      .def(
          "set_output",
          [](Graph& g, const std::string& name, const PyValue& v) { g.set_output(name, v.id); },
          py::arg("name"), py::arg("value"))
      .def_property_readonly(
          "ops",
          [](const Graph& g) {
            std::vector<std::string> names;
            for (const graph::Op& op : g.ops()) names.emplace_back(graph::name_of(op));
            return names;
          },
          "Names of the ops, in order.")
      .def_property_readonly("matrices", &Graph::matrices,
                             "Weights of linear layers, each once, in the order of their use.")
      .def_property_readonly(
          "paged_layers", [](const Graph& g) { return g.state().paged; },
          "The layers of the cache.")
      .def_property_readonly(
          "position_axes",
          [](const Graph& g) {
            int32_t most = 0;
            for (const graph::Op& op : g.ops())
              if (const auto* table = std::get_if<graph::RopeTable>(&op))
                most = std::max(most, table->axis_count());
            return most;
          },
          "Axes of positions that rope reads; 0: none but the position in a sequence.")
      .def_property_readonly(
          "slot_entries", [](const Graph& g) { return g.state().slot; },
          "Floats of each entry of recurrent state.")
      .def_property_readonly("outputs", &output_names, "Names of the outputs.")
      .def_property_readonly("results", &results, "(name, row space, columns) of the outputs.")
      .def_property_readonly("inputs", &inputs, "(name, row space, columns) of the inputs.")
      .def_property_readonly("op_matrices", &op_matrices,
                             "Names of the matrices of each op, in order; most have none.")
      .def(
          "crossing_columns",
          [](const Graph& g, size_t at) -> std::optional<int64_t> {
            const int64_t columns = graph::crossing_columns(g, at);
            return columns < 0 ? std::nullopt : std::optional<int64_t>(columns);
          },
          py::arg("at"),
          "Floats a row that a cut before op `at` moves; None where something else would move.")
      .def("cut", &cut, py::arg("points"),
           "(graph, its layers of the cache, its entries of the slots) of each stage between cuts "
           "before the ops `points`.")
      .def("isolated", &isolated,
           "(name, graph, [(input, rows a token, columns)]) of one op of each kind and shape.");
  register_ops(m, c);
}

}  // namespace

void register_graph(py::module_& m) {
  register_weight(m);
  register_value(m);
  register_paged_layer(m);
  register_graph_class(m);
}

}  // namespace oxibonsai::bindings
