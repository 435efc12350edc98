#pragma once

// NVIDIA's driver, opened when it is first asked for: neither the build nor the machine needs a
// toolkit. The types are those of cuda.h, as far as the calls below use them.

#include <cstddef>
#include <string>

#include "base/check.h"

namespace oxibonsai::cuda {

using Result = int;
using DeviceId = int;
using DevicePointer = unsigned long long;
struct ContextHandle;
struct ModuleHandle;
struct FunctionHandle;
struct StreamHandle;
struct LinkHandle;
struct GraphHandle;
struct GraphExecHandle;

constexpr Result kSuccess = 0;
constexpr Result kOutOfMemory = 2;

// Attributes of cuDeviceGetAttribute.
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
// Options of cuLinkCreate and cuLinkAddData.
constexpr int kJitErrorLogBuffer = 5;
constexpr int kJitErrorLogBufferBytes = 6;
constexpr int kJitInputPtx = 1;

// Every call that is used, with its parameters. The suffix is that of the ABI since CUDA 4.
#define OXI_CUDA_CALLS(X)                                                                          \
  X(cuInit, (unsigned flags))                                                                      \
  X(cuDriverGetVersion, (int* version))                                                            \
  X(cuGetErrorName, (Result result, const char** name))                                            \
  X(cuGetErrorString, (Result result, const char** text))                                          \
  X(cuDeviceGetCount, (int* count))                                                                \
  X(cuDeviceGet, (DeviceId * device, int index))                                                   \
  X(cuDeviceGetName, (char* name, int bytes, DeviceId device))                                     \
  X(cuDeviceGetAttribute, (int* value, int attribute, DeviceId device))                            \
  X(cuDeviceTotalMem_v2, (size_t * bytes, DeviceId device))                                        \
  X(cuDevicePrimaryCtxRetain, (ContextHandle * *context, DeviceId device))                         \
  X(cuDevicePrimaryCtxRelease_v2, (DeviceId device))                                               \
  X(cuCtxPushCurrent_v2, (ContextHandle * context))                                                \
  X(cuCtxPopCurrent_v2, (ContextHandle * *context))                                                \
  X(cuMemGetInfo_v2, (size_t * free, size_t * total))                                              \
  X(cuMemAlloc_v2, (DevicePointer * memory, size_t bytes))                                         \
  X(cuMemFree_v2, (DevicePointer memory))                                                          \
  X(cuMemHostAlloc, (void** memory, size_t bytes, unsigned flags))                                 \
  X(cuMemFreeHost, (void* memory))                                                                 \
  X(cuMemcpyHtoDAsync_v2, (DevicePointer to, const void* from, size_t bytes, StreamHandle* s))     \
  X(cuMemcpyDtoHAsync_v2, (void* to, DevicePointer from, size_t bytes, StreamHandle* s))           \
  X(cuMemcpyDtoDAsync_v2, (DevicePointer to, DevicePointer from, size_t bytes, StreamHandle * s))  \
  X(cuMemsetD8Async, (DevicePointer to, unsigned char value, size_t bytes, StreamHandle* s))       \
  X(cuStreamCreate, (StreamHandle * *stream, unsigned flags))                                      \
  X(cuStreamDestroy_v2, (StreamHandle * stream))                                                   \
  X(cuStreamSynchronize, (StreamHandle * stream))                                                  \
  X(cuModuleLoadDataEx,                                                                            \
    (ModuleHandle * *module, const void* image, unsigned count, int* options, void** values))      \
  X(cuModuleUnload, (ModuleHandle * module))                                                       \
  X(cuModuleGetFunction, (FunctionHandle * *function, ModuleHandle * module, const char* name))    \
  X(cuLinkCreate_v2, (unsigned count, int* options, void** values, LinkHandle** state))            \
  X(cuLinkAddData_v2, (LinkHandle * state, int type, void* data, size_t bytes, const char* name,   \
                       unsigned count, int* options, void** values))                               \
  X(cuLinkComplete, (LinkHandle * state, void** cubin, size_t* bytes))                             \
  X(cuLinkDestroy, (LinkHandle * state))                                                           \
  X(cuLaunchKernel, (FunctionHandle * function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,  \
                     StreamHandle* s, void** parameters, void** extra))

// Calls of CUDA graphs, which drivers have from CUDA 11.4 on.
#define OXI_CUDA_GRAPH_CALLS(X)                                                   \
  X(cuStreamBeginCapture_v2, (StreamHandle * s, int mode))                        \
  X(cuStreamEndCapture, (StreamHandle * s, GraphHandle * *graph))                 \
  X(cuGraphInstantiateWithFlags,                                                  \
    (GraphExecHandle * *runnable, GraphHandle * graph, unsigned long long flags)) \
  X(cuGraphLaunch, (GraphExecHandle * runnable, StreamHandle * s))                \
  X(cuGraphDestroy, (GraphHandle * graph))                                        \
  X(cuGraphExecDestroy, (GraphExecHandle * runnable))

struct Driver {
#define X(name, parameters) Result(*name) parameters = nullptr;
  OXI_CUDA_CALLS(X)
  OXI_CUDA_GRAPH_CALLS(X)  // to be used with has_graphs alone
#undef X
  bool has_graphs = true;

  int version = 0;  // 12040 for the driver of CUDA 12.4

  // The machine's driver, or the library that OXIBONSAI_LIBCUDA names. UnsupportedError where it
  // can't be opened, is too old or finds no card; the next call tries again.
  static const Driver& get();

  // CapacityError where memory did not suffice, else DeviceError: what failed and the driver's
  // words.
  void check(Result result, const char* what) const;
  std::string describe(Result result) const;

 private:
  Driver() = default;
  static Driver open(const std::string& name);
};

}  // namespace oxibonsai::cuda
