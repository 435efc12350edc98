#pragma once

#include <pybind11/pybind11.h>

namespace oxibonsai::bindings {

// One function an area, each in the file of its name.
void register_errors(pybind11::module_& m);
void register_quant(pybind11::module_& m);
void register_encode(pybind11::module_& m);
void register_format(pybind11::module_& m);
void register_format_writer(pybind11::module_& m);
void register_cpu(pybind11::module_& m);
void register_program(pybind11::module_& m);
void register_sampling(pybind11::module_& m);

}  // namespace oxibonsai::bindings
