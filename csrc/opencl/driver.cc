#include "opencl/driver.h"

#include "base/library.h"
#include "base/os/os.h"

namespace oxibonsai::opencl {
namespace {

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
  return kept_driver<Driver>("OXIBONSAI_LIBOPENCL", os::kOpenClLibrary, open);
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
