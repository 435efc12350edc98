#include <pybind11/stl.h>

#include "bindings/register.h"
#include "cuda/cuda_backend.h"
#include "metal/metal_backend.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

py::dict facts(const std::string& name, const std::string& description, const std::string& reason,
               py::object total, py::object free) {
  return py::dict(py::arg("name") = name, py::arg("description") = description,
                  py::arg("usable") = reason.empty(), py::arg("reason") = reason,
                  py::arg("total_bytes") = std::move(total),
                  py::arg("free_bytes") = std::move(free));
}

// A backend that is opened only to look at it, or why it can't be.
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

py::list gpu_devices(const std::string& image_folder, const std::vector<std::string>& nvrtc) {
  py::list all;
  try {
    const std::vector<cuda::CardInfo> cards = cuda::cards();
    for (size_t i = 0; i < cards.size(); ++i)
      all.append(inspect("cuda:" + std::to_string(i), cards[i].name, [&] {
        return cuda::open_card(static_cast<int>(i), {image_folder, nvrtc});
      }));
  } catch (const Error& e) {
    all.append(facts("cuda", "", e.what(), py::none(), py::none()));
  }
  all.append(inspect("metal", "", [] { return metal::open_metal(); }));
  return all;
}

}  // namespace

void register_gpu(py::module_& m) {
  m.def("gpu_devices", &gpu_devices, py::arg("image_folder"), py::arg("nvrtc"),
        "Facts of each GPU, or of each kind of GPU and why there is none.");
}

}  // namespace oxibonsai::bindings
