#include "opencl/devices.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace oxibonsai::opencl {
namespace {

constexpr uint64_t kInfinities = 1 << 1, kRoundToNearest = 1 << 2;  // CL_FP_...
constexpr uint64_t kCoarseGrainBuffer = 1 << 0;                     // CL_DEVICE_SVM_...
constexpr uint64_t kAccess = 1 << 0;  // CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL

// What a kernel of gpu/kernels takes at most.
constexpr size_t kThreads = 256;
constexpr uint64_t kLocalMemory = 32 << 10;
constexpr int kSpirvMinor = 3;  // version 1.3 (cmake/split_spirv.py)

std::string text(const Driver& d, DeviceHandle* device, uint32_t what) {
  size_t bytes = 0;
  // A driver that knows no such fact has none.
  if (d.clGetDeviceInfo(device, what, 0, nullptr, &bytes) != kSuccess || bytes == 0) return "";
  std::string value(bytes, '\0');
  d.check(d.clGetDeviceInfo(device, what, bytes, value.data(), nullptr), "clGetDeviceInfo");
  return value.c_str();
}

// Zero where the driver knows no such fact.
template <class T>
T fact(const Driver& d, DeviceHandle* device, uint32_t what) {
  T value{};
  return d.clGetDeviceInfo(device, what, sizeof value, &value, nullptr) == kSuccess ? value : T{};
}

std::vector<size_t> subgroup_sizes(const Driver& d, DeviceHandle* device) {
  size_t bytes = 0;
  if (d.clGetDeviceInfo(device, kDeviceSubGroupSizes, 0, nullptr, &bytes) != kSuccess) return {};
  std::vector<size_t> sizes(bytes / sizeof(size_t));
  d.check(d.clGetDeviceInfo(device, kDeviceSubGroupSizes, bytes, sizes.data(), nullptr),
          "clGetDeviceInfo");
  return sizes;
}

std::string name_of(const Driver& d, PlatformHandle* platform) {
  char name[256] = {};
  d.check(d.clGetPlatformInfo(platform, kPlatformName, sizeof name - 1, name, nullptr),
          "clGetPlatformInfo");
  return name;
}

DeviceInfo read(const Driver& d, PlatformHandle* platform, DeviceHandle* device) {
  DeviceInfo i;
  i.platform = platform;
  i.device = device;
  i.platform_name = name_of(d, platform);
  i.name = text(d, device, kDeviceName);
  i.driver_version = text(d, device, kDriverVersion);
  i.profile = text(d, device, kDeviceProfile);
  i.languages = text(d, device, kDeviceIlVersion);
  i.extensions = text(d, device, kDeviceExtensions);
  i.type = fact<uint64_t>(d, device, kDeviceType);
  i.address_bits = fact<uint32_t>(d, device, kDeviceAddressBits);
  i.little_endian = fact<uint32_t>(d, device, kDeviceEndianLittle);
  i.float_config = fact<uint64_t>(d, device, kDeviceSingleFpConfig);
  i.memory = fact<uint64_t>(d, device, kDeviceGlobalMemSize);
  i.largest_buffer = fact<uint64_t>(d, device, kDeviceMaxMemAllocSize);
  i.local_memory = fact<uint64_t>(d, device, kDeviceLocalMemSize);
  i.largest_block = fact<size_t>(d, device, kDeviceMaxWorkGroupSize);
  i.subgroup_sizes = subgroup_sizes(d, device);
  i.shared_memory = fact<uint64_t>(d, device, kDeviceSvmCapabilities);
  i.device_memory = fact<uint64_t>(d, device, kDeviceDeviceMemCapabilities);
  return i;
}

std::vector<PlatformHandle*> platforms(const Driver& d) {
  uint32_t count = 0;
  const Result result = d.clGetPlatformIDs(0, nullptr, &count);
  if (result == kNoPlatform || count == 0) return {};
  d.check(result, "clGetPlatformIDs");
  std::vector<PlatformHandle*> all(count);
  d.check(d.clGetPlatformIDs(count, all.data(), nullptr), "clGetPlatformIDs");
  return all;
}

std::vector<DeviceHandle*> devices_of(const Driver& d, PlatformHandle* platform) {
  uint32_t count = 0;
  const Result result = d.clGetDeviceIDs(platform, kAllTypes, 0, nullptr, &count);
  if (result == kDeviceNotFound || count == 0) return {};
  d.check(result, "clGetDeviceIDs");
  std::vector<DeviceHandle*> all(count);
  d.check(d.clGetDeviceIDs(platform, kAllTypes, count, all.data(), nullptr), "clGetDeviceIDs");
  return all;
}

bool has_extension(const DeviceInfo& device, const std::string& name) {
  return (" " + device.extensions + " ").find(" " + name + " ") != std::string::npos;
}

bool takes_spirv(const DeviceInfo& device) {
  const std::string prefix = "SPIR-V_1.";
  std::istringstream words(device.languages);
  for (std::string word; words >> word;)
    if (word.rfind(prefix, 0) == 0 && std::atoi(word.c_str() + prefix.size()) >= kSpirvMinor)
      return true;
  return false;
}

int rank(const DeviceInfo& device) {
  return (device.type & kTypeGpu) != 0 ? 0 : device.is_cpu() ? 2 : 1;
}

}  // namespace

std::vector<DeviceInfo> devices() {
  const Driver& d = Driver::get();
  std::vector<DeviceInfo> all;
  for (PlatformHandle* platform : platforms(d))
    for (DeviceHandle* device : devices_of(d, platform)) all.push_back(read(d, platform, device));
  if (all.empty()) throw UnsupportedError("no OpenCL driver with a device is installed");
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return all;
}

bool has_device_memory(const DeviceInfo& device) {
  return has_extension(device, "cl_intel_unified_shared_memory") &&
         (device.device_memory & kAccess) != 0;
}

std::string missing(const DeviceInfo& device) {
  std::string all;
  const auto need = [&](bool has, const std::string& what) {
    if (!has) all += (all.empty() ? "" : ", ") + what;
  };
  const auto& sizes = device.subgroup_sizes;
  // With integers of 8, 16 and 64 bits, and a correctly rounded fma.
  need(device.profile == "FULL_PROFILE", "the full profile");
  need(takes_spirv(device), "SPIR-V 1.3");
  for (const char* name : {"cl_khr_subgroup_shuffle", "cl_khr_subgroup_shuffle_relative",
                           "cl_intel_required_subgroup_size"})
    need(has_extension(device, name), name);
  need(std::find(sizes.begin(), sizes.end(), size_t{32}) != sizes.end(), "subgroups of 32");
  need(device.address_bits == 64, "addresses of 64 bits");
  need(device.little_endian != 0, "little-endian numbers");
  need((device.float_config & kRoundToNearest) != 0, "CL_FP_ROUND_TO_NEAREST");
  need((device.float_config & kInfinities) != 0, "CL_FP_INF_NAN");
  need(device.largest_block >= kThreads, "work groups of 256");
  need(device.local_memory >= kLocalMemory, "32 KiB of local memory");
  need(has_device_memory(device) || (device.shared_memory & kCoarseGrainBuffer) != 0,
       "unified shared memory (cl_intel_unified_shared_memory) or coarse-grained shared virtual "
       "memory");
  return all;
}

}  // namespace oxibonsai::opencl
