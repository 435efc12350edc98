#include "opencl/driver.h"

#include <cstdlib>
#include <map>
#include <mutex>

#include "base/library.h"
#include "base/os/os.h"

namespace oxibonsai::opencl {
namespace {

std::string library_name() {
  const char* named = std::getenv("OXIBONSAI_LIBOPENCL");
  return named == nullptr || *named == '\0' ? os::kOpenClLibrary : named;
}

// Those that a correct use of the calls can meet.
const char* error_name(Result result) {
  switch (result) {
    case kDeviceNotFound:
      return "CL_DEVICE_NOT_FOUND";
    case -2:
      return "CL_DEVICE_NOT_AVAILABLE";
    case -3:
      return "CL_COMPILER_NOT_AVAILABLE";
    case kNoMemoryForBuffer:
      return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case kOutOfResources:
      return "CL_OUT_OF_RESOURCES";
    case kOutOfHostMemory:
      return "CL_OUT_OF_HOST_MEMORY";
    case -11:
      return "CL_BUILD_PROGRAM_FAILURE";
    case -42:
      return "CL_INVALID_BINARY";
    case -54:
      return "CL_INVALID_WORK_GROUP_SIZE";
    case -59:
      return "CL_INVALID_OPERATION";
    case -61:
      return "CL_INVALID_BUFFER_SIZE";
    default:
      return nullptr;
  }
}

}  // namespace

const Driver& Driver::get() {
  static std::mutex mutex;
  static std::map<std::string, Driver> drivers;  // never closed: drivers do not survive it
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string name = library_name();
  const auto found = drivers.find(name);
  return found != drivers.end() ? found->second : drivers.emplace(name, open(name)).first->second;
}

Driver Driver::open(const std::string& name) {
  const Library library(name);
  Driver d;
#define X(call, type, parameters) \
  library.find(&d.call, #call, "it is older than OpenCL 2.1: install a newer one");
  OXI_OPENCL_CALLS(X)
#undef X
  return d;
}

void Driver::check(Result result, const std::string& what) const {
  if (result == kSuccess) return;
  const char* name = error_name(result);
  std::string message = what + ": error " + std::to_string(result);
  if (name != nullptr) message += std::string(" (") + name + ")";
  if (result == kNoMemoryForBuffer || result == kOutOfHostMemory) throw CapacityError(message);
  throw DeviceError(message);
}

}  // namespace oxibonsai::opencl
