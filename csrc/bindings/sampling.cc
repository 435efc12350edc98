#include "sampling/sampling.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/check.h"
#include "base/threefry.h"
#include "bindings/register.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

const Floats& non_empty(const Floats& logits) {
  if (logits.size() == 0) throw RequestError("no logits to choose from");
  return logits;
}

}  // namespace

void register_sampling(py::module_& m) {
  m.def(
      "argmax", [](const Floats& x) { return sampling::argmax(non_empty(x).data(), x.size()); },
      py::arg("logits"), "The lowest index of the largest logit.");
  m.def(
      "top_k",
      [](const Floats& x, int64_t k) {
        const std::vector<int32_t> best = sampling::top_k(non_empty(x).data(), x.size(), k);
        return py::array_t<int32_t>(static_cast<py::ssize_t>(best.size()), best.data());
      },
      py::arg("logits"), py::arg("k"), "Indices of the k largest, ties by lower index.");
  m.def(
      "exp",
      [](const Floats& x) {
        py::array_t<float> y(x.size());
        sampling::exp(x.data(), x.size(), y.mutable_data());
        return y;
      },
      py::arg("x"), "e^x of the one arithmetic, the same bits on every machine.");
  m.def("uniform", &sampling::uniform, py::arg("seed"), py::arg("counter"),
        "Uniform in [0, 1), a function of (seed, counter) alone.");
  m.def(
      "threefry2x32",
      [](uint32_t k0, uint32_t k1, uint32_t c0, uint32_t c1) {
        const Words2 w = threefry2x32({k0, k1}, {c0, c1});
        return py::make_tuple(w.a, w.b);
      },
      py::arg("k0"), py::arg("k1"), py::arg("c0"), py::arg("c1"));
}

}  // namespace oxibonsai::bindings
