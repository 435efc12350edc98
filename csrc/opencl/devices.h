#pragma once

#include <string>
#include <vector>

#include "opencl/driver.h"

namespace oxibonsai::opencl {

// What a driver says of a device.
struct DeviceInfo {
  PlatformHandle* platform = nullptr;
  DeviceHandle* device = nullptr;
  std::string name, platform_name, driver_version, profile;
  std::string languages;   // that it compiles: "SPIR-V_1.3 SPIR-V_1.4"
  std::string extensions;  // with a space between two
  uint64_t type = 0;       // kTypeCpu ...
  uint32_t address_bits = 0, little_endian = 0;
  uint64_t float_config = 0;  // CL_FP_...
  uint64_t memory = 0, largest_buffer = 0, local_memory = 0;
  size_t largest_block = 0;  // threads
  std::vector<size_t> subgroup_sizes;
  uint64_t shared_memory = 0;  // CL_DEVICE_SVM_...
  uint64_t device_memory = 0;  // unified shared memory: CL_UNIFIED_SHARED_MEMORY_...

  bool is_cpu() const { return type == kTypeCpu; }
};

// The devices of all drivers: GPUs, then others, then processors. UnsupportedError where there is
// no loader or no device.
std::vector<DeviceInfo> devices();

// How buffers are allocated: as unified shared memory of the device, else as shared virtual memory.
bool has_device_memory(const DeviceInfo& device);

// What a device lacks of what the kernels need, by its name in OpenCL; empty where it has all.
std::string missing(const DeviceInfo& device);

}  // namespace oxibonsai::opencl
