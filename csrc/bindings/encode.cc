#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>

#include "base/check.h"
#include "base/thread_pool.h"
#include "bindings/register.h"
#include "quant/encode.h"
#include "quant/encode_feedback.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

const quant::QuantTraits& checked(const Floats& values, const std::string& name, int threads) {
  const quant::QuantTraits* t = quant::find_by_name(name);
  if (t == nullptr) throw RequestError("no quant type is called " + name);
  if (values.ndim() != 2)
    throw RequestError("values must be rows and columns, not of " + std::to_string(values.ndim()) +
                       " dimensions");
  if (threads < 1) throw RequestError("threads must be at least 1");
  return *t;
}

py::array_t<uint8_t> encode(const Floats& values, const std::string& name,
                            const std::optional<Floats>& importance, int threads) {
  const quant::QuantTraits& t = checked(values, name, threads);
  const int64_t rows = values.shape(0);
  const int64_t cols = values.shape(1);
  if (importance && (importance->ndim() != 1 || importance->size() != cols))
    throw RequestError("importance must have one number for each of the " + std::to_string(cols) +
                       " columns");
  py::array_t<uint8_t> blocks({rows, quant::row_bytes(t.type, cols)});
  const float* from = values.data();
  const float* weights = importance ? importance->data() : nullptr;
  uint8_t* to = blocks.mutable_data();
  const py::gil_scoped_release unlocked;
  ThreadPool pool(threads);
  quant::encode(t.type, from, rows, cols, weights, pool, to);
  return blocks;
}

py::array_t<uint8_t> encode_with_feedback(const Floats& values, const std::string& name,
                                          const Floats& factor, int threads) {
  const quant::QuantTraits& t = checked(values, name, threads);
  const int64_t rows = values.shape(0);
  const int64_t cols = values.shape(1);
  if (factor.ndim() != 2 || factor.shape(0) != cols || factor.shape(1) != cols)
    throw RequestError("the factor must be a square of the " + std::to_string(cols) + " columns");
  py::array_t<uint8_t> blocks({rows, quant::row_bytes(t.type, cols)});
  const float* from = values.data();
  const float* triangle = factor.data();
  uint8_t* to = blocks.mutable_data();
  const py::gil_scoped_release unlocked;
  ThreadPool pool(threads);
  quant::encode_with_feedback(t.type, from, rows, cols, triangle, pool, to);
  return blocks;
}

bool takes_feedback(const std::string& name) {
  const quant::QuantTraits* t = quant::find_by_name(name);
  if (t == nullptr) throw RequestError("no quant type is called " + name);
  return quant::takes_feedback(t->type);
}

py::dict encoders() {
  static constexpr const char* kNames[] = {"unused", "optional", "needed"};
  py::dict all;
  for (int i = 0; i < static_cast<int>(quant::QuantType::kCount); ++i) {
    const auto type = static_cast<quant::QuantType>(i);
    all[quant::traits(type).name] = kNames[static_cast<int>(quant::encoder_of(type).importance)];
  }
  return all;
}

}  // namespace

void register_encode(py::module_& m) {
  m.def("encode", &encode, py::arg("values"), py::arg("type"), py::arg("importance") = py::none(),
        py::arg("threads") = 1);
  m.def("encode_with_feedback", &encode_with_feedback, py::arg("values"), py::arg("type"),
        py::arg("factor"), py::arg("threads") = 1);
  m.def("takes_feedback", &takes_feedback, py::arg("type"));
  m.def("encoders", &encoders);
}

}  // namespace oxibonsai::bindings
