#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/check.h"
#include "bindings/held_object.h"
#include "bindings/register.h"
#include "graph/tensor_parallel.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using graph::Exchange;
using graph::Sharding;

// An exchange that a Python function does: called with this rank's floats and room for those of all
// ranks, in a thread of the device.
class PyExchange : public Exchange {
 public:
  PyExchange(int ranks, int rank, py::function all_gather)
      : Exchange(ranks, rank), all_gather_(std::move(all_gather)) {}

  void all_gather(const float* own, float* all, int64_t floats) override {
    const py::gil_scoped_acquire gil;
    // The memory is the step's: neither array owns it.
    const py::capsule nobody(own, [](void*) {});
    (*all_gather_)(py::array_t<float>(floats, own, nobody),
                   py::array_t<float>(floats * ranks(), all, nobody));
  }

 private:
  const HeldObject<py::function> all_gather_;
};

std::shared_ptr<Exchange> make_exchange(int ranks, int rank, py::function all_gather) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    throw RequestError("an exchange has ranks 0 to " + std::to_string(ranks - 1));
  return std::make_shared<PyExchange>(ranks, rank, std::move(all_gather));
}

// (row space, floats a row that a rank sends) of each gather, in order.
std::vector<std::pair<std::string, int64_t>> messages(const graph::Graph& g) {
  std::vector<std::pair<std::string, int64_t>> all;
  for (const graph::Op& op : g.ops())
    if (const auto* gather = std::get_if<graph::Gather>(&op))
      all.emplace_back(to_string(g.value(gather->x.front()).rows), gather->sent_columns());
  return all;
}

}  // namespace

void register_tensor_parallel(py::module_& m) {
  py::class_<Exchange, std::shared_ptr<Exchange>>(
      m, "Exchange", "How processes that share a graph hand each other what each has computed.")
      .def(py::init(&make_exchange), py::arg("ranks"), py::arg("rank"), py::arg("all_gather"),
           "all_gather(own, all): float32 arrays, the second with room for those of all ranks.");
  py::class_<Sharding>(m, "Sharding", "The share of a graph that one of several processes runs.")
      .def(py::init<std::shared_ptr<Exchange>>(), py::arg("exchange"))
      .def(
          "share",
          [](Sharding& s, const graph::Graph& g) {
            return std::make_shared<graph::Graph>(s.share(g));
          },
          py::arg("graph"),
          "The rows of each matrix that are this process's, and what puts the results together.")
      .def_static("messages", &messages, py::arg("graph"),
                  "(row space, floats a row that each process sends) of each message of a share.");
}

}  // namespace oxibonsai::bindings
