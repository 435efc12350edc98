#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gpu/backend.h"

namespace oxibonsai::opencl {

// Opens a device by its place in devices(), and checks what it does. `folder` keeps compiled
// kernels between starts, where it is not empty; `unpack` unpacks xz. UnsupportedError where there
// is no such device, where it lacks something, or where this build has no SPIR-V; DeviceError where
// the driver fails.
gpu::BackendPtr open_device(int index, const std::string& folder,
                            const std::function<std::string(std::string_view)>& unpack);

}  // namespace oxibonsai::opencl
