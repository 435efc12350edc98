#include "cuda/driver.h"

#include "base/library.h"
#include "base/os/os.h"

namespace oxibonsai::cuda {

const Driver& Driver::get() {
  return kept_driver<Driver>("OXIBONSAI_LIBCUDA", os::kCudaDriverLibrary, open);
}

Driver Driver::open(const std::string& name) {
  const Library library(name);
  Driver d;
#define X(call, parameters) \
  library.find(&d.call, #call, "the driver is older than CUDA 11: install a newer one");
  OXI_CUDA_CALLS(X)
#undef X
#define X(call, parameters) d.has_graphs = library.find_optional(&d.call, #call) && d.has_graphs;
  OXI_CUDA_GRAPH_CALLS(X)
#undef X
  if (const Result result = d.cuInit(0); result != kSuccess)
    throw UnsupportedError("the NVIDIA driver (" + name +
                           ") cannot be used: cuInit: " + d.describe(result));
  d.check(d.cuDriverGetVersion(&d.version), "cuDriverGetVersion");
  return d;
}

void Driver::check(Result result, const char* what) const {
  if (result == kSuccess) return;
  const std::string message = std::string(what) + ": " + describe(result);
  if (result == kOutOfMemory) throw CapacityError(message);
  throw DeviceError(message);
}

std::string Driver::describe(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != kSuccess || name == nullptr)
    return "error " + std::to_string(result);
  if (cuGetErrorString(result, &text) != kSuccess || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

}  // namespace oxibonsai::cuda
