#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string_view>
#include <variant>

#include "base/check.h"
#include "base/mapped_file.h"
#include "bindings/executable.h"
#include "bindings/kv_types.h"
#include "bindings/register.h"
#include "cpu/device.h"
#include "cpu/dispatch.h"
#include "cpu/executable.h"
#include "cpu/kv_layout.h"
#include "cpu/profiler.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using cpu::CpuDevice;
using cpu::Executable;
using cpu::KvPages;
using cpu::PackedWeights;
using cpu::Slots;

using PagedLayers = std::vector<graph::PagedLayer>;

std::shared_ptr<KvPages> make_pages(const PagedLayers& layers, const TypeNames& type,
                                    int64_t pages) {
  return std::make_shared<KvPages>(layers, kv_types(type, layers.size()), pages);
}

// A page or slot as bytes, and back.
template <class Store>
py::bytes read(const Store& store, int64_t index, int64_t bytes) {
  return {reinterpret_cast<const char*>(store.read(index)), static_cast<size_t>(bytes)};
}

template <class Store>
void write(Store& store, int64_t index, const py::bytes& data) {
  const std::string_view bytes = data;
  store.write(index, reinterpret_cast<const uint8_t*>(bytes.data()),
              static_cast<int64_t>(bytes.size()));
}

void register_state(py::module_& m) {
  m.attr("PAGE_POSITIONS") = cpu::kPagePositions;
  py::tuple types(cpu::kKvTypeNames.size());
  for (size_t i = 0; i < types.size(); ++i) types[i] = cpu::kKvTypeNames[i];
  m.attr("KV_TYPES") = types;
  m.def(
      "kv_page_bytes",
      [](const PagedLayers& layers, const TypeNames& type) {
        return cpu::kv_page_bytes(layers, kv_types(type, layers.size()));
      },
      py::arg("layers"), py::arg("type"));
  py::class_<KvPages, std::shared_ptr<KvPages>>(m, "KvPages")
      .def(py::init(&make_pages), py::arg("layers"), py::arg("type"), py::arg("pages"))
      .def_property_readonly("type", [](const KvPages& p) { return kv_type_name(p.types()); })
      .def_property_readonly("pages", &KvPages::pages)
      .def_property_readonly("page_bytes", &KvPages::page_bytes)
      .def("copy", &KvPages::copy, py::arg("source"), py::arg("target"),
           py::call_guard<py::gil_scoped_release>())
      .def(
          "read", [](const KvPages& p, int64_t page) { return read(p, page, p.page_bytes()); },
          py::arg("page"))
      .def("write", &write<KvPages>, py::arg("page"), py::arg("data"))
      .def("release", &KvPages::release, py::arg("page"),
           "Gives the page's memory back to the system; what it held is lost.");
  m.def("slot_bytes", &cpu::slot_bytes, py::arg("entries"));
  py::class_<Slots, std::shared_ptr<Slots>>(m, "Slots", "Recurrent state of sequences.")
      .def(py::init<std::vector<int64_t>, int64_t>(), py::arg("entries"), py::arg("slots"))
      .def_property_readonly("slots", &Slots::slots)
      .def_property_readonly("slot_bytes", &Slots::slot_bytes)
      .def("copy", &Slots::copy, py::arg("source"), py::arg("target"),
           py::call_guard<py::gil_scoped_release>())
      .def(
          "read", [](const Slots& s, int64_t slot) { return read(s, slot, s.slot_bytes()); },
          py::arg("slot"))
      .def("write", &write<Slots>, py::arg("slot"), py::arg("data"));
}

PackedWeights pack(CpuDevice& device, const graph::Weights& weights,
                   const std::function<void(int64_t)>& progress) {
  const py::gil_scoped_release free;
  return device.pack(weights, [&](int64_t bytes) {
    if (!progress) return;
    const py::gil_scoped_acquire gil;
    progress(bytes);
  });
}

// Weights that an earlier run packed, in a file from byte `offset` on.
PackedWeights attach(CpuDevice& device, const graph::Weights& weights, const std::string& path,
                     int64_t offset) {
  const auto file = std::make_shared<const MappedFile>(path);
  const auto size = static_cast<int64_t>(file->size());
  if (offset < 0 || offset > size || offset % 64 != 0)
    throw RequestError(path + " is no file of packed weights");
  return device.attach(weights, file->data() + offset, size - offset, file);
}

const cpu::KernelTable& tier_table(const std::string& tier) {
  return tier.empty() ? cpu::kernels() : cpu::table(tier);
}

void register_cpu_device(py::module_& m) {
  py::class_<PackedWeights>(m, "PackedWeights", py::buffer_protocol(),
                            "Weights as a device keeps them; it forgets them with this object and "
                            "the executables that use them.")
      .def_property_readonly("nbytes", [](const PackedWeights& p) { return p.bytes; })
      .def_buffer([](PackedWeights& p) {
        return py::buffer_info(p.data, static_cast<py::ssize_t>(p.bytes));
      });
  py::class_<Executable, std::shared_ptr<Executable>>(m, "Executable",
                                                      "A graph that a device has compiled.")
      .def("run", &run<cpu::State, Executable, KvPages, Slots>, py::arg("batch"),
           py::arg("pools") = std::vector<std::shared_ptr<KvPages>>{}, py::arg("slots") = nullptr,
           "Results by name, float32 [rows, columns]; the GIL is free while it runs.")
      .def(
          "step_bytes",
          [](const Executable& e, const py::object& batch,
             const std::vector<std::shared_ptr<KvPages>>& pools,
             const std::shared_ptr<Slots>& slots) {
            return e.step_bytes(*native_batch(batch), native_state<cpu::State>(pools, slots));
          },
          py::arg("batch"), py::arg("pools") = std::vector<std::shared_ptr<KvPages>>{},
          py::arg("slots") = nullptr,
          "Memory that a run of the batch takes for values and workspaces, results left out.")
      .def_property_readonly("table_bytes", &Executable::table_bytes,
                             "Of the tables of embeddings, which are read where they are stored.");
  py::class_<cpu::OpTime>(m, "OpTime", "What ops of one kind took.")
      .def_readonly("op", &cpu::OpTime::op, "Its name.")
      .def_readonly("weights", &cpu::OpTime::weights,
                    "Types of its matrices, joined by +; or \"\".")
      .def_readonly("runs", &cpu::OpTime::runs)
      .def_readonly("multiply_adds", &cpu::OpTime::multiply_adds, "In its matrices.")
      .def_readonly("seconds", &cpu::OpTime::seconds, "Of all threads together.");
  py::class_<CpuDevice, std::shared_ptr<CpuDevice>>(m, "CpuDevice",
                                                    "A tier of the processor, and threads.")
      .def(py::init([](int threads, const std::string& tier) {
             return std::make_shared<CpuDevice>(tier_table(tier), threads);
           }),
           py::arg("threads"), py::arg("tier") = "")
      .def_property_readonly("name", [](const CpuDevice&) { return "cpu"; })
      .def_property_readonly("tier", [](const CpuDevice& d) { return std::string(d.table().name); })
      .def_property_readonly("threads", [](const CpuDevice& d) { return d.pool()->size(); })
      .def_property_readonly("pool", &CpuDevice::pool)
      .def_property_readonly("free_bytes", [](const CpuDevice&) { return py::none(); })
      .def(
          "make_pages",
          [](const CpuDevice&, const PagedLayers& layers, const TypeNames& type, int64_t pages) {
            return make_pages(layers, type, pages);
          },
          py::arg("layers"), py::arg("type"), py::arg("pages"))
      .def(
          "make_slots",
          [](const CpuDevice&, const std::vector<int64_t>& entries, int64_t slots) {
            return std::make_shared<Slots>(entries, slots);
          },
          py::arg("entries"), py::arg("slots"))
      .def("with_threads", &CpuDevice::with_threads, py::arg("threads"),
           "The same packed weights behind other threads; both can run at once.")
      .def(
          "with_tier",
          [](const CpuDevice& d, const std::string& tier) { return d.with_tier(tier_table(tier)); },
          py::arg("tier"), "Another tier on the same threads.")
      .def("packed_size", &CpuDevice::packed_size, py::arg("weights"),
           "Bytes that pack() will take.")
      .def("pack", &pack, py::arg("weights"), py::arg("progress") = nullptr,
           "Packs what is not packed yet; progress(bytes) after each weight, an exception stops.")
      .def("attach", &attach, py::arg("weights"), py::arg("path"), py::arg("offset"),
           "Maps what pack() gave, from a file.")
      .def(
          "packed_nbytes",
          [](const CpuDevice& d, const graph::WeightPtr& w) -> py::object {
            const cpu::PackedWeightPtr packed = d.packed(w);
            return packed == nullptr ? py::object(py::none()) : py::int_(packed->bytes());
          },
          py::arg("weight"),
          "Bytes of the packed form, 0 where the stored one serves; None: not packed.")
      .def("compile", &CpuDevice::compile, py::arg("graph"),
           py::call_guard<py::gil_scoped_release>())
      .def(
          "start_profile", [](const CpuDevice& d) { d.profiler()->start(); },
          "Times the ops of its executables from now on.")
      .def(
          "end_profile", [](const CpuDevice& d) { return d.profiler()->end(); },
          "What each kind of op took since start_profile().");
}

}  // namespace

void register_device(py::module_& m) {
  register_state(m);
  register_cpu_device(m);
}

}  // namespace oxibonsai::bindings
