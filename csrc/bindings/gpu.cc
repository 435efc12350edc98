#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "bindings/executable.h"
#include "bindings/kv_types.h"
#include "bindings/register.h"
#include "cuda/cuda_backend.h"
#include "gpu/device.h"
#include "gpu/executable.h"
#include "metal/metal_backend.h"
#include "opencl/devices.h"
#include "opencl/opencl_backend.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using gpu::Executable;
using gpu::GpuDevice;
using gpu::KvPages;
using gpu::Slots;

// Weights as a GPU keeps them.
struct GpuWeights {
  std::vector<gpu::PackedWeightPtr> weights;
  int64_t bytes;
};

// ---- Which GPUs there are.

std::string unpack_xz(std::string_view compressed) {
  const py::gil_scoped_acquire gil;
  try {
    const py::object unpack = py::module_::import("lzma").attr("decompress");
    return unpack(py::bytes(compressed.data(), compressed.size())).cast<std::string>();
  } catch (const py::error_already_set& e) {
    throw UnsupportedError(std::string("the embedded kernels cannot be unpacked: ") + e.what());
  }
}

gpu::BackendPtr open_cuda(int index, const std::string& image_folder,
                          const std::vector<std::string>& nvrtc) {
  return cuda::open_card(index, {image_folder, nvrtc, unpack_xz});
}

gpu::BackendPtr open_opencl(int index, const std::string& image_folder) {
  return opencl::open_device(index, image_folder, unpack_xz);
}

py::dict facts(const std::string& name, const std::string& description, const std::string& reason,
               py::object total, py::object free) {
  return py::dict(py::arg("name") = name, py::arg("description") = description,
                  py::arg("usable") = reason.empty(), py::arg("reason") = reason,
                  py::arg("total_bytes") = std::move(total),
                  py::arg("free_bytes") = std::move(free));
}

// Of a backend that is opened to look at it, or why it can't be.
template <class Open>
py::dict inspect(const std::string& name, const std::string& description, const Open& open) {
  try {
    const gpu::BackendPtr backend = open();
    const gpu::Memory memory = backend->memory();
    return facts(name, backend->device(), "", py::int_(memory.total), py::int_(memory.free));
  } catch (const Error& e) {
    return facts(name, description, e.what(), py::none(), py::none());
  }
}

void add_opencl(py::list* all, const std::string& image_folder) {
  try {
    const std::vector<opencl::DeviceInfo> devices = opencl::devices();
    for (int i = 0; i < static_cast<int>(devices.size()); ++i) {
      const opencl::DeviceInfo& d = devices[static_cast<size_t>(i)];
      py::dict found = inspect("opencl:" + std::to_string(i), d.name + ", " + d.platform_name,
                               [&] { return open_opencl(i, image_folder); });
      found["on_cpu"] = d.is_cpu();
      all->append(std::move(found));
    }
  } catch (const Error& e) {
    all->append(facts("opencl", "", e.what(), py::none(), py::none()));
  }
}

py::list gpu_devices(const std::string& image_folder, const std::vector<std::string>& nvrtc) {
  py::list all;
  try {
    const std::vector<cuda::CardInfo> cards = cuda::cards();
    for (int i = 0; i < static_cast<int>(cards.size()); ++i)
      all.append(inspect("cuda:" + std::to_string(i), cards[static_cast<size_t>(i)].name,
                         [&] { return open_cuda(i, image_folder, nvrtc); }));
    if (cards.empty())
      all.append(facts("cuda", "", "the driver finds no card", py::none(), py::none()));
  } catch (const Error& e) {
    all.append(facts("cuda", "", e.what(), py::none(), py::none()));
  }
  all.append(inspect("metal", "", [] { return metal::open_metal(); }));
  add_opencl(&all, image_folder);
  return all;
}

std::shared_ptr<GpuDevice> open_gpu(const std::string& name, int threads,
                                    const std::string& image_folder,
                                    const std::vector<std::string>& nvrtc) {
  const py::gil_scoped_release free;
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  const int index = colon == std::string::npos ? 0 : std::stoi(name.substr(colon + 1));
  gpu::BackendPtr backend;
  if (kind == "metal") {
    backend = metal::open_metal();
  } else if (kind == "cuda") {
    backend = open_cuda(index, image_folder, nvrtc);
  } else if (kind == "opencl") {
    backend = open_opencl(index, image_folder);
  } else {
    throw RequestError("no GPU is called " + name);
  }
  return std::make_shared<GpuDevice>(std::move(backend), std::make_shared<ThreadPool>(threads));
}

// ---- What it keeps and runs.

template <class Store>
py::bytes read(const Store& store, int64_t index) {
  std::vector<uint8_t> bytes;
  {
    const py::gil_scoped_release free;
    bytes = store.read(index);
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class Store>
void write(Store& store, int64_t index, const py::bytes& data) {
  const std::string_view bytes = data;
  const py::gil_scoped_release free;
  store.write(index, reinterpret_cast<const uint8_t*>(bytes.data()),
              static_cast<int64_t>(bytes.size()));
}

std::shared_ptr<KvPages> make_pages(const GpuDevice& device,
                                    const std::vector<graph::PagedLayer>& layers,
                                    const TypeNames& type, int64_t pages) {
  return std::make_shared<KvPages>(device.backend(), layers, kv_types(type, layers.size()), pages);
}

std::shared_ptr<Slots> make_slots(const GpuDevice& device, const std::vector<int64_t>& entries,
                                  int64_t slots) {
  return std::make_shared<Slots>(device.backend(), entries, slots);
}

int64_t packed_bytes(const graph::Weights& weights) {
  int64_t sum = 0;
  for (const graph::WeightPtr& w : weights) sum += gpu::packed_size(*w);
  return sum;
}

std::shared_ptr<GpuWeights> pack(GpuDevice& device, const graph::Weights& weights,
                                 const std::function<void(int64_t)>& progress) {
  const py::gil_scoped_release free;
  auto packed = device.pack(weights, [&](int64_t bytes) {
    if (!progress) return;
    const py::gil_scoped_acquire gil;
    progress(bytes);
  });
  return std::make_shared<GpuWeights>(GpuWeights{std::move(packed), packed_bytes(weights)});
}

// Bytes per second, read and written, of the fastest of some copies within the device.
double copy_bandwidth(const GpuDevice& device, int64_t bytes, int repeats) {
  if (bytes < 1 || repeats < 1) throw RequestError("a copy needs bytes, and at least one repeat");
  const py::gil_scoped_release free;
  gpu::Backend& backend = *device.backend();
  const gpu::BufferPtr from = backend.allocate(bytes), to = backend.allocate(bytes);
  backend.fill({from.get(), 0}, 1, bytes);
  backend.synchronize();
  double best = 0.0;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    backend.copy({from.get(), 0}, {to.get(), 0}, bytes);
    backend.synchronize();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * static_cast<double>(bytes) / taken.count());
  }
  return best;
}

// ---- Results of which only a part leaves the device.

size_t output_of(const Executable& executable, const std::string& name) {
  const auto& outputs = executable.outputs();
  const auto found = std::find_if(outputs.begin(), outputs.end(),
                                  [&](const auto& output) { return output.first == name; });
  if (found == outputs.end()) throw RequestError("the graph has no output " + name);
  return static_cast<size_t>(found - outputs.begin());
}

py::tuple run_top(Executable& executable, const py::object& py_batch,
                  const std::vector<std::shared_ptr<KvPages>>& pools,
                  const std::shared_ptr<Slots>& slots, const std::string& output, int64_t k) {
  const auto batch = native_batch(py_batch);
  const auto state = native_state<gpu::State>(pools, slots);
  const size_t index = output_of(executable, output);
  const auto rows = static_cast<py::ssize_t>(executable.output_rows(index, *batch));
  const auto columns = static_cast<py::ssize_t>(std::max<int64_t>(k, 0));
  py::array_t<int32_t> ids({rows, columns});
  py::array_t<float> values({rows, columns});
  int32_t* id_data = ids.mutable_data();
  float* value_data = values.mutable_data();
  {
    const py::gil_scoped_release free;
    executable.run_top(*batch, state, index, k, id_data, value_data);
  }
  return py::make_tuple(std::move(ids), std::move(values));
}

py::array_t<float> read_row(Executable& executable, const std::string& output, int64_t row) {
  const size_t index = output_of(executable, output);
  py::array_t<float> result(static_cast<py::ssize_t>(executable.outputs()[index].second));
  float* data = result.mutable_data();
  const py::gil_scoped_release free;
  executable.read_row(index, row, data);
  return result;
}

void register_state(py::module_& m) {
  py::class_<KvPages, std::shared_ptr<KvPages>>(m, "GpuPages")
      .def_property_readonly("type", [](const KvPages& p) { return kv_type_name(p.types()); })
      .def_property_readonly("pages", &KvPages::pages)
      .def_property_readonly("page_bytes", &KvPages::page_bytes)
      .def("copy", &KvPages::copy, py::arg("source"), py::arg("target"),
           py::call_guard<py::gil_scoped_release>())
      .def("read", &read<KvPages>, py::arg("page"))
      .def("write", &write<KvPages>, py::arg("page"), py::arg("data"))
      .def(
          "release", [](const KvPages&, int64_t) {}, py::arg("page"),
          "Nothing: all pages are one piece of the device's memory.");
  py::class_<Slots, std::shared_ptr<Slots>>(m, "GpuSlots", "Recurrent state of sequences.")
      .def_property_readonly("slots", &Slots::slots)
      .def_property_readonly("slot_bytes", &Slots::slot_bytes)
      .def("copy", &Slots::copy, py::arg("source"), py::arg("target"),
           py::call_guard<py::gil_scoped_release>())
      .def("read", &read<Slots>, py::arg("slot"))
      .def("write", &write<Slots>, py::arg("slot"), py::arg("data"));
}

void register_gpu_device(py::module_& m) {
  py::class_<GpuWeights, std::shared_ptr<GpuWeights>>(
      m, "GpuWeights",
      "Weights as a GPU keeps them; it forgets them with this object and the executables that use "
      "them.")
      .def_readonly("nbytes", &GpuWeights::bytes);
  py::class_<Executable, std::shared_ptr<Executable>>(m, "GpuExecutable",
                                                      "A graph that a GPU has compiled.")
      .def("run", &run<gpu::State, Executable, KvPages, Slots>, py::arg("batch"),
           py::arg("pools") = std::vector<std::shared_ptr<KvPages>>{}, py::arg("slots") = nullptr,
           "Results by name, float32 [rows, columns]; the GIL is free while it runs.")
      .def("run_top", &run_top, py::arg("batch"), py::arg("pools"), py::arg("slots"),
           py::arg("output"), py::arg("k"),
           "Runs the batch; ids and values of the k largest of each row of an output, [rows, k]: "
           "the largest first, ties by lower id.")
      .def("read_row", &read_row, py::arg("output"), py::arg("row"),
           "A row of an output of the latest run_top(), float32 [columns].")
      .def("keep_kernel_names", &Executable::keep_kernel_names,
           py::call_guard<py::gil_scoped_release>(),
           "Keeps the names of the kernels that steps launch from now on.")
      .def("kernel_names", &Executable::kernel_names, py::call_guard<py::gil_scoped_release>(),
           "The kernels of the steps since keep_kernel_names(), in the order of their names.");
  py::class_<GpuDevice, std::shared_ptr<GpuDevice>>(m, "GpuDevice", "A GPU.")
      .def_property_readonly("name", [](const GpuDevice& d) { return d.backend()->name(); })
      .def_property_readonly("tier", [](const GpuDevice& d) { return d.backend()->device(); })
      .def_property_readonly("threads", [](const GpuDevice& d) { return d.pool()->size(); })
      .def_property_readonly("free_bytes",
                             [](const GpuDevice& d) { return d.backend()->memory().free; })
      .def(
          "with_threads",
          [](const GpuDevice& d, int) -> std::shared_ptr<GpuDevice> {
            throw UnsupportedError(d.backend()->name() +
                                   " runs one engine at a time: leave out replicas");
          },
          py::arg("threads"))
      .def("packed_size", &GpuDevice::packed_size, py::arg("weights"))
      .def("pack", &pack, py::arg("weights"), py::arg("progress") = nullptr)
      .def(
          "packed_nbytes",
          [](const GpuDevice& d, const graph::WeightPtr& w) -> py::object {
            return d.packed(w) == nullptr ? py::object(py::none()) : py::int_(gpu::packed_size(*w));
          },
          py::arg("weight"))
      .def("compile", &GpuDevice::compile, py::arg("graph"),
           py::call_guard<py::gil_scoped_release>())
      .def("copy_bandwidth", &copy_bandwidth, py::arg("bytes"), py::arg("repeats"),
           "Bytes per second, read and written, of the fastest of some copies within the device.")
      .def("make_pages", &make_pages, py::arg("layers"), py::arg("type"), py::arg("pages"))
      .def("make_slots", &make_slots, py::arg("entries"), py::arg("slots"));
}

}  // namespace

void register_gpu(py::module_& m) {
  m.def("gpu_devices", &gpu_devices, py::arg("image_folder"), py::arg("nvrtc"),
        "Facts of each GPU, or of each kind of GPU and why there is none.");
  register_state(m);
  register_gpu_device(m);
  m.def("open_gpu", &open_gpu, py::arg("name"), py::arg("threads"), py::arg("image_folder"),
        py::arg("nvrtc"));
}

}  // namespace oxibonsai::bindings
