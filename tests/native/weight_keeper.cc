// A module beside the package's whose code gives a weight back without the GIL.

#include <pybind11/pybind11.h>

#include <memory>
#include <thread>

#include "graph/weight.h"

namespace py = pybind11;

namespace {

class Keeper {
 public:
  explicit Keeper(std::shared_ptr<oxibonsai::graph::Weight> weight) : weight_(std::move(weight)) {}

  void let_go() {
    const py::gil_scoped_release free;
    std::thread([this] { weight_.reset(); }).join();
  }

 private:
  std::shared_ptr<oxibonsai::graph::Weight> weight_;
};

}  // namespace

PYBIND11_MODULE(weight_keeper, m) {
  py::class_<Keeper>(m, "Keeper")
      .def(py::init<std::shared_ptr<oxibonsai::graph::Weight>>())
      .def("let_go", &Keeper::let_go);
}
