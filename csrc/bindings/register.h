#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "graph/batch.h"

namespace oxibonsai::bindings {

// One function an area, each in the file of its name.
void register_errors(pybind11::module_& m);
void register_quant(pybind11::module_& m);
void register_encode(pybind11::module_& m);
void register_format(pybind11::module_& m);
void register_format_writer(pybind11::module_& m);
void register_cpu(pybind11::module_& m);
void register_graph(pybind11::module_& m);
void register_batch(pybind11::module_& m);
void register_device(pybind11::module_& m);
void register_gpu(pybind11::module_& m);
void register_tensor_parallel(pybind11::module_& m);
void register_sampling(pybind11::module_& m);

// The batch that a Python object holds; nobody changes it while it is held.
std::shared_ptr<const graph::Batch> native_batch(const pybind11::handle& batch);

}  // namespace oxibonsai::bindings
