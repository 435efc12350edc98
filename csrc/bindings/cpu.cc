#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/aligned.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "bindings/register.h"
#include "cpu/dispatch.h"
#include "ops/weight.h"
#include "quant/split.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using Bytes = py::array_t<uint8_t, py::array::c_style | py::array::forcecast>;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

// Activations of one or more rows, rounded.
struct Rounded {
  explicit Rounded(const cpu::KernelTable& table, const float* x, int64_t rows, int64_t cols)
      : q(rows * cols),
        scale(rows * cols / 32),
        sum16(rows * cols / 16),
        sum(scale.size()),
        offset(scale.size()) {
    if (cols % 32 != 0) throw RequestError("activations are rounded in whole groups of 32");
    table.quantize(x, rows * cols,
                   {q.data(), scale.data(), sum16.data(), sum.data(), offset.data()});
  }
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum16, sum;
  std::vector<float> offset;
};

py::tuple quantize(const std::string& tier, const Floats& x) {
  const Rounded r(cpu::table(tier), x.data(), 1, x.size());
  return py::make_tuple(
      py::array_t<int8_t>(static_cast<py::ssize_t>(r.q.size()), r.q.data()),
      py::array_t<float>(static_cast<py::ssize_t>(r.scale.size()), r.scale.data()));
}

// y = x * w^T by the kernel of one tier, for tests and benchmarks.
py::array_t<float> linear(const std::string& tier, const std::string& type_name, const Bytes& rows,
                          int64_t cols, const Floats& x) {
  const quant::QuantTraits* type = quant::find_by_name(type_name);
  if (type == nullptr) throw RequestError("no quant type is called " + type_name);
  if (x.ndim() != 2 || x.shape(1) != cols || rows.ndim() != 2 ||
      rows.shape(1) != quant::row_bytes(type->type, cols))
    throw RequestError("linear() takes rows [n, row bytes] and x [tokens, cols]");
  const cpu::KernelTable& table = cpu::table(tier);
  ThreadPool pool(1);
  ops::Weight weight("w", type->type, rows.shape(0), cols, rows.data(), nullptr);
  weight.pack(table, pool);
  cpu::LinearArgs a{};
  const cpu::LinearKernel& kernel = weight.bind(&a);
  a.last = weight.rows();
  a.tokens = x.shape(0);
  a.xf = x.data();
  py::array_t<float> y({x.shape(0), rows.shape(0)});
  a.y = y.mutable_data();
  a.stride = weight.rows();
  if (quant::is_integer(type->type)) {
    const Rounded r(table, x.data(), a.tokens, cols);
    a.x = {r.q.data(), r.scale.data(), r.sum16.data(), r.sum.data(), r.offset.data(), cols};
    kernel.run(a);
  } else {
    kernel.run(a);
  }
  return y;
}

// Reads a buffer much larger than any cache, 64 bytes at a time, on all threads.
double read_bandwidth(ThreadPool& pool, int64_t bytes, int repeats) {
  const py::gil_scoped_release free;
  AlignedBuffer buffer(static_cast<size_t>(bytes));
  constexpr int64_t kPiece = 1 << 20;
  const int64_t pieces = bytes / kPiece;
  pool.for_each(pieces, 1, [&](int64_t begin, int64_t end) {
    std::memset(buffer.data() + begin * kPiece, 1, static_cast<size_t>((end - begin) * kPiece));
  });
  std::atomic<uint64_t> sum{0};
  double best = 0.0;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pool.for_each(pieces, 4, [&](int64_t begin, int64_t end) {
      const auto* words = reinterpret_cast<const uint64_t*>(buffer.data() + begin * kPiece);
      uint64_t lanes[32] = {};
      for (int64_t w = 0; w < (end - begin) * kPiece / 8; w += 32)
        for (int lane = 0; lane < 32; ++lane) lanes[lane] += words[w + lane];
      for (const uint64_t lane : lanes) sum += lane;
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(pieces * kPiece) / taken.count());
  }
  return sum == 0 ? 0.0 : best;
}

}  // namespace

void register_cpu(py::module_& m) {
  py::module_ cpu = m.def_submodule("cpu", "CPU tiers and their kernels.");
  cpu.def("tiers", &cpu::available_tiers, "Tiers that this machine can run, lowest first.");
  cpu.def(
      "name", [] { return std::string(cpu::kernels().name); }, "The tier in use.");
  cpu.def("quantize", &quantize, py::arg("tier"), py::arg("x"));
  cpu.def("linear", &linear, py::arg("tier"), py::arg("quant_type"), py::arg("rows"),
          py::arg("cols"), py::arg("x"));
  py::class_<ThreadPool, std::shared_ptr<ThreadPool>>(m, "ThreadPool")
      .def(py::init<int>(), py::arg("threads"))
      .def_property_readonly("size", &ThreadPool::size)
      .def("read_bandwidth", &read_bandwidth, py::arg("bytes"), py::arg("repeats"),
           "Bytes per second of the fastest of some passes over memory.");
}

}  // namespace oxibonsai::bindings
