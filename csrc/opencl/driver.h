#pragma once

// The loader of OpenCL's drivers, opened when it is first asked for: the build needs no headers of
// OpenCL. The types are those of CL/cl.h, as far as the calls below use them.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"

namespace oxibonsai::opencl {

using Result = int32_t;
struct PlatformHandle;
struct DeviceHandle;
struct ContextHandle;
struct QueueHandle;
struct ProgramHandle;
struct KernelHandle;
struct EventHandle;

constexpr Result kSuccess = 0;
constexpr Result kNoMemoryForBuffer = -4;
constexpr Result kOutOfResources = -5;
constexpr Result kOutOfHostMemory = -6;
constexpr Result kDeviceNotFound = -1;
constexpr Result kNoPlatform = -1001;

constexpr uint64_t kAllTypes = 0xFFFFFFFF, kTypeCpu = 1 << 1, kTypeGpu = 1 << 2;

constexpr uint32_t kPlatformName = 0x0902;
constexpr uint32_t kDeviceType = 0x1000;
constexpr uint32_t kDeviceMaxWorkGroupSize = 0x1004;
constexpr uint32_t kDeviceAddressBits = 0x100D;
constexpr uint32_t kDeviceMaxMemAllocSize = 0x1010;
constexpr uint32_t kDeviceSingleFpConfig = 0x101B;
constexpr uint32_t kDeviceGlobalMemSize = 0x101F;
constexpr uint32_t kDeviceLocalMemSize = 0x1023;
constexpr uint32_t kDeviceEndianLittle = 0x1026;
constexpr uint32_t kDeviceName = 0x102B;
constexpr uint32_t kDriverVersion = 0x102D;
constexpr uint32_t kDeviceProfile = 0x102E;
constexpr uint32_t kDeviceExtensions = 0x1030;
constexpr uint32_t kDeviceSvmCapabilities = 0x1053;
constexpr uint32_t kDeviceIlVersion = 0x105B;
constexpr uint32_t kDeviceSubGroupSizes = 0x4108;          // cl_intel_required_subgroup_size
constexpr uint32_t kDeviceDeviceMemCapabilities = 0x4191;  // cl_intel_unified_shared_memory
constexpr uint32_t kProgramBinarySizes = 0x1165;
constexpr uint32_t kProgramBinaries = 0x1166;
constexpr uint32_t kProgramBuildLog = 0x1183;
constexpr uint32_t kKernelWorkGroupSize = 0x11B0;
constexpr uint32_t kKernelMaxSubGroupSizeForNdrange = 0x2033;

// Every call that is used, with its type and parameters.
#define OXI_OPENCL_CALLS(X)                                                                        \
  X(clGetPlatformIDs, Result, (uint32_t count, PlatformHandle * *platforms, uint32_t * found))     \
  X(clGetPlatformInfo, Result,                                                                     \
    (PlatformHandle * platform, uint32_t what, size_t bytes, void* value, size_t* size))           \
  X(clGetDeviceIDs, Result,                                                                        \
    (PlatformHandle * platform, uint64_t types, uint32_t count, DeviceHandle * *devices,           \
     uint32_t * found))                                                                            \
  X(clGetDeviceInfo, Result,                                                                       \
    (DeviceHandle * device, uint32_t what, size_t bytes, void* value, size_t* size))               \
  X(clCreateContext, ContextHandle*,                                                               \
    (const intptr_t* properties, uint32_t count, DeviceHandle* const* devices,                     \
     void (*notify)(const char*, const void*, size_t, void*), void* user, Result* result))         \
  X(clReleaseContext, Result, (ContextHandle * context))                                           \
  X(clCreateCommandQueueWithProperties, QueueHandle*,                                              \
    (ContextHandle * context, DeviceHandle * device, const uint64_t* properties, Result* result))  \
  X(clReleaseCommandQueue, Result, (QueueHandle * queue))                                          \
  X(clFinish, Result, (QueueHandle * queue))                                                       \
  X(clCreateProgramWithIL, ProgramHandle*,                                                         \
    (ContextHandle * context, const void* il, size_t bytes, Result* result))                       \
  X(clCreateProgramWithBinary, ProgramHandle*,                                                     \
    (ContextHandle * context, uint32_t count, DeviceHandle* const* devices, const size_t* sizes,   \
     const uint8_t* const* binaries, Result* statuses, Result* result))                            \
  X(clBuildProgram, Result,                                                                        \
    (ProgramHandle * program, uint32_t count, DeviceHandle* const* devices, const char* options,   \
     void (*notify)(ProgramHandle*, void*), void* user))                                           \
  X(clGetProgramBuildInfo, Result,                                                                 \
    (ProgramHandle * program, DeviceHandle * device, uint32_t what, size_t bytes, void* value,     \
     size_t* size))                                                                                \
  X(clGetProgramInfo, Result,                                                                      \
    (ProgramHandle * program, uint32_t what, size_t bytes, void* value, size_t* size))             \
  X(clReleaseProgram, Result, (ProgramHandle * program))                                           \
  X(clCreateKernel, KernelHandle*, (ProgramHandle * program, const char* name, Result* result))    \
  X(clReleaseKernel, Result, (KernelHandle * kernel))                                              \
  X(clGetKernelWorkGroupInfo, Result,                                                              \
    (KernelHandle * kernel, DeviceHandle * device, uint32_t what, size_t bytes, void* value,       \
     size_t* size))                                                                                \
  X(clGetKernelSubGroupInfo, Result,                                                               \
    (KernelHandle * kernel, DeviceHandle * device, uint32_t what, size_t in_bytes, const void* in, \
     size_t bytes, void* value, size_t* size))                                                     \
  X(clSetKernelArg, Result,                                                                        \
    (KernelHandle * kernel, uint32_t index, size_t bytes, const void* value))                      \
  X(clEnqueueNDRangeKernel, Result,                                                                \
    (QueueHandle * queue, KernelHandle * kernel, uint32_t dims, const size_t* offset,              \
     const size_t* global, const size_t* local, uint32_t events, const EventHandle* const* wait,   \
     EventHandle** event))                                                                         \
  X(clSVMAlloc, void*, (ContextHandle * context, uint64_t flags, size_t bytes, uint32_t align))    \
  X(clSVMFree, void, (ContextHandle * context, void* memory))                                      \
  X(clSetKernelArgSVMPointer, Result, (KernelHandle * kernel, uint32_t index, const void* value))  \
  X(clEnqueueSVMMemcpy, Result,                                                                    \
    (QueueHandle * queue, uint32_t blocking, void* to, const void* from, size_t bytes,             \
     uint32_t events, const EventHandle* const* wait, EventHandle** event))                        \
  X(clEnqueueSVMMemFill, Result,                                                                   \
    (QueueHandle * queue, void* to, const void* pattern, size_t pattern_bytes, size_t bytes,       \
     uint32_t events, const EventHandle* const* wait, EventHandle** event))                        \
  X(clGetExtensionFunctionAddressForPlatform, void*, (PlatformHandle * platform, const char* name))

struct Driver {
#define X(name, type, parameters) type(*name) parameters = nullptr;
  OXI_OPENCL_CALLS(X)
#undef X

  // The machine's loader, or the library that OXIBONSAI_LIBOPENCL names. UnsupportedError where it
  // can't be opened or is older than OpenCL 2.1; the next call tries again.
  static const Driver& get();

  // CapacityError where memory did not suffice, else DeviceError: what failed and the error's name.
  void check(Result result, const std::string& what) const;

 private:
  Driver() = default;
  static Driver open(const std::string& name);
};

}  // namespace oxibonsai::opencl
