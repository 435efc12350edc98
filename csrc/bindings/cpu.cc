#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "base/huge_buffer.h"
#include "base/thread_pool.h"
#include "bindings/register.h"
#include "cpu/dispatch.h"
#include "cpu/packed_weight.h"
#include "cpu/quantized_rows.h"
#include "quant/unpack.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using Bytes = py::array_t<uint8_t, py::array::c_style | py::array::forcecast>;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

// Rounded, with everything that any kernel of the tier wants to know of them.
std::unique_ptr<cpu::RoundedRows> round_rows(const cpu::KernelTable& table, const float* x,
                                             int64_t rows, int64_t cols) {
  if (cols % 32 != 0) throw RequestError("activations are rounded in whole groups of 32");
  return std::make_unique<cpu::RoundedRows>(table, x, rows, cols, table.make_tables != nullptr);
}

py::tuple quantize(const std::string& tier, const Floats& x) {
  const auto rounded = round_rows(cpu::table(tier), x.data(), 1, x.size());
  return py::make_tuple(py::array_t<int8_t>(x.size(), rounded->values().q),
                        py::array_t<float>(x.size() / 32, rounded->values().scale));
}

std::vector<std::pair<int, int>> tile_forms() {
  std::vector<std::pair<int, int>> forms;
  for (const cpu::LinearKernel& k : cpu::kernels().linear)
    forms.emplace_back(k.tile_rows, static_cast<int>(k.form));
  return forms;
}

// A linear layer on its own, for tests and benchmarks: y = x * w^T by the kernel of one tier.
class Linear {
 public:
  Linear(const std::string& tier, const std::string& type_name, const Bytes& rows, int64_t cols,
         std::shared_ptr<ThreadPool> pool)
      : table_(cpu::table(tier)), pool_(std::move(pool)), rows_(rows) {
    const quant::QuantTraits* type = quant::find_by_name(type_name);
    if (type == nullptr) throw RequestError("no quant type is called " + type_name);
    if (rows.ndim() != 2 || rows.shape(1) != quant::row_bytes(type->type, cols))
      throw RequestError("Linear() takes rows [n, row bytes]");
    weight_ = std::make_shared<graph::Weight>("w", type->type, rows.shape(0), cols, rows_.data(),
                                              nullptr);
    packed_ = cpu::pack_weights({weight_}, table_, *pool_, [](int64_t) {}).weights.front();
  }

  int64_t nbytes() const { return std::max(packed_->bytes(), weight_->bytes()); }

  void set_input(const Floats& x) {
    if (x.ndim() != 2 || x.shape(1) != weight_->cols())
      throw RequestError("the input has the shape [tokens, cols]");
    x_ = x;
    if (quant::is_integer(weight_->type()))
      rounded_ = round_rows(table_, x.data(), x.shape(0), x.shape(1));
    y_.resize(static_cast<size_t>(x.shape(0) * weight_->rows()));
  }

  // As a step does it: pieces of rows, a run of them for each thread.
  void run() {
    cpu::LinearArgs all{};
    all.xf = x_.data();
    if (rounded_) all.x = rounded_->values();
    all.y = y_.data();
    all.stride = weight_->rows();
    const int64_t pieces = packed_->items();
    const int64_t panels = (x_.shape(0) + cpu::kPanelTokens - 1) / cpu::kPanelTokens;
    const py::gil_scoped_release free;
    pool_->run({panels * pieces}, [&](uint32_t, int64_t i) {
      cpu::LinearArgs a = all;
      packed_->bind_item(0, i % pieces, &a);
      a.first_token = i / pieces * cpu::kPanelTokens;
      a.last_token = std::min<int64_t>(x_.shape(0), a.first_token + cpu::kPanelTokens);
      packed_->kernel().run(a);
    });
  }

  py::array_t<float> output() const {
    return py::array_t<float>({x_.shape(0), static_cast<py::ssize_t>(weight_->rows())}, y_.data());
  }

 private:
  const cpu::KernelTable& table_;
  const std::shared_ptr<ThreadPool> pool_;
  const Bytes rows_;
  graph::WeightPtr weight_;
  cpu::PackedWeightPtr packed_;
  Floats x_;
  std::unique_ptr<cpu::RoundedRows> rounded_;
  std::vector<float> y_;
};

// Reads a buffer much larger than any cache, 64 bytes at a time, on all threads.
double read_bandwidth(ThreadPool& pool, int64_t bytes, int repeats) {
  const py::gil_scoped_release free;
  HugeBuffer buffer(static_cast<size_t>(bytes));
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

// Multiply-adds per second of the fastest of some passes of a loop, on all threads.
double peak(ThreadPool& pool, int64_t (*loop)(int64_t rounds), int repeats) {
  const py::gil_scoped_release free;
  constexpr int64_t kRounds = 100'000;
  double best = 0.0;
  for (int i = 0; i < repeats; ++i) {
    std::atomic<int64_t> done{0};
    const auto start = std::chrono::steady_clock::now();
    pool.for_each(pool.size(), 1, [&](int64_t, int64_t) { done += loop(kRounds); });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(done) / taken.count());
  }
  return best;
}

double int8_peak(ThreadPool& pool, const std::string& tier, int repeats) {
  const cpu::KernelTable& table = cpu::table(tier);
  if (table.int8_peak == nullptr)
    throw UnsupportedError("the tier " + tier + " has no dot product of bytes to measure");
  return peak(pool, table.int8_peak, repeats);
}

double fma_peak(ThreadPool& pool, const std::string& tier, int repeats) {
  return peak(pool, cpu::table(tier).fma_peak, repeats);
}

}  // namespace

void register_cpu(py::module_& m) {
  py::module_ cpu = m.def_submodule("cpu", "CPU tiers and their kernels.");
  cpu.def("tiers", &cpu::available_tiers, "Tiers that this machine can run, lowest first.");
  cpu.def(
      "name", [] { return std::string(cpu::kernels().name); }, "The tier in use.");
  cpu.def("tile_forms", &tile_forms,
          "For each quant type, rows and form of the tiles of the tier in use.");
  cpu.def("quantize", &quantize, py::arg("tier"), py::arg("x"));
  py::class_<Linear>(cpu, "Linear")
      .def(py::init<const std::string&, const std::string&, const Bytes&, int64_t,
                    std::shared_ptr<ThreadPool>>(),
           py::arg("tier"), py::arg("quant_type"), py::arg("rows"), py::arg("cols"),
           py::arg("pool"))
      .def_property_readonly("nbytes", &Linear::nbytes, "Bytes that a run reads.")
      .def("set_input", &Linear::set_input, py::arg("x"))
      .def("run", &Linear::run)
      .def("output", &Linear::output, "float32 [tokens, rows] of the last run.");
  py::class_<ThreadPool, std::shared_ptr<ThreadPool>>(m, "ThreadPool")
      .def(py::init<int>(), py::arg("threads"))
      .def_property_readonly("size", &ThreadPool::size)
      .def("read_bandwidth", &read_bandwidth, py::arg("bytes"), py::arg("repeats"),
           "Bytes per second of the fastest of some passes over memory.")
      .def("int8_peak", &int8_peak, py::arg("tier"), py::arg("repeats"),
           "Multiply-adds of bytes per second that a tier reaches in registers.")
      .def("fma_peak", &fma_peak, py::arg("tier"), py::arg("repeats"),
           "Multiply-adds of floats per second that a tier reaches in registers.");
}

}  // namespace oxibonsai::bindings
