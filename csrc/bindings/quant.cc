#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/check.h"
#include "bindings/register.h"
#include "quant/quant_type.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using Bytes = py::array_t<uint8_t, py::array::c_style | py::array::forcecast>;

const quant::QuantTraits& by_name(const std::string& name) {
  const quant::QuantTraits* t = quant::find_by_name(name);
  if (t == nullptr) throw RequestError("no quant type is called " + name);
  return *t;
}

py::array_t<float> decode(const std::string& name, const Bytes& blocks) {
  const quant::QuantTraits& t = by_name(name);
  if (blocks.size() % t.bytes != 0)
    throw RequestError(std::to_string(blocks.size()) + " bytes are no whole number of " + t.name +
                       " blocks of " + std::to_string(t.bytes));
  const int64_t count = blocks.size() / t.bytes * t.group;
  py::array_t<float> out(count);
  const uint8_t* from = blocks.data();
  float* to = out.mutable_data();
  const py::gil_scoped_release unlocked;
  t.decode(from, to, count);
  return out;
}

py::list quant_types() {
  py::list all;
  for (int i = 0; i < static_cast<int>(quant::QuantType::kCount); ++i) {
    const quant::QuantTraits& t = quant::traits(static_cast<quant::QuantType>(i));
    all.append(py::dict(py::arg("name") = t.name, py::arg("gguf_id") = t.gguf_id,
                        py::arg("group") = t.group, py::arg("bytes") = t.bytes));
  }
  return all;
}

}  // namespace

void register_quant(py::module_& m) {
  m.def("decode", &decode, py::arg("quant_type"), py::arg("blocks"));
  m.def("quant_types", &quant_types);
}

}  // namespace oxibonsai::bindings
