#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <vector>

#include "graph/graph.h"

// What the bindings of a graph, of its ops and of its weights share.
namespace oxibonsai::bindings {

using Floats = pybind11::array_t<float, pybind11::array::c_style | pybind11::array::forcecast>;
using GraphClass = pybind11::class_<graph::Graph, std::shared_ptr<graph::Graph>>;

// A value as Python holds it.
struct PyValue {
  graph::ValueId id;
  graph::Value value;
};

inline graph::Vector vector(const std::optional<Floats>& values) {
  if (!values.has_value()) return nullptr;
  return std::make_shared<const std::vector<float>>(values->data(),
                                                    values->data() + values->size());
}

// Weight and InputSums.
void register_weight(pybind11::module_& m);

// The ops as methods of the graph, and what they are.
void register_ops(pybind11::module_& m, GraphClass& c);

}  // namespace oxibonsai::bindings
