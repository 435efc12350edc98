// A CUDA driver and run-time compiler without a card: the calls that csrc/cuda makes, over emulated
// threads. It is stricter than a real one: a call without a current context, memory outside of an
// allocation, or an unknown image is an error. The fake_* functions at the end are for tests.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gpu/emulator/emulator.h"

#define API extern "C" __attribute__((visibility("default")))

using oxibonsai::gpu::emulator::find_kernel;
using oxibonsai::gpu::emulator::Kernel;
using Pointer = unsigned long long;

namespace {

enum Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchFailed = 719,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureUnmatched = 903,
};

constexpr char kCubin[] = "a cubin of the fake compiler";
constexpr int kDriverVersion = 13000;

// A launch with copies of its parameters.
struct Node {
  const Kernel* kernel;
  oxibonsai::gpu::Grid grid;
  uint32_t threads;
  std::vector<uint8_t> args;
  std::vector<Pointer> buffers;
};

struct Graph {
  std::vector<Node> nodes;
};

struct Fake {
  std::mutex mutex;
  std::map<Pointer, size_t> allocations;
  size_t used = 0;
  size_t memory = size_t{2} << 30;
  int generation = 90;
  int cards = 1;
  long fails_allocation = 0;  // counts down to the allocation that fails; 0: none
  long fails_launch = 0;
  long fails_graph = 0;  // counts down to the graph that fails, with
  int graph_failure = kOutOfMemory;
  long made = 0, launched = 0, compiled = 0;
  long graph_launches = 0, uploads = 0, downloads = 0, synchronizations = 0;
  bool capture_broken = false;
  Graph captured;
  std::set<Graph*> graphs, runnable;
  uint64_t fetched = 0;  // bytes
  int lost = kSuccess;   // what every call gives once a card is lost
  std::string words;     // of the last failure
  bool refuses_ptx = false;
  uint64_t seed = 1;
  bool idle = false;
  std::string spoiled;            // the kernel that does nothing
  std::set<std::string> kernels;  // that were launched
};

Fake& fake() {
  static Fake f;
  return f;
}

thread_local void* current = nullptr;
thread_local std::vector<void*> outer;  // contexts that were current before it
thread_local bool capturing = false;    // one thread at a time

// Locks, and says what stands against any call on the card.
class Call {
 public:
  Call() : lock_(fake().mutex) {}
  int refusal() const {
    if (fake().lost != kSuccess) return fake().lost;
    if (capturing) {  // a real driver refuses some calls alone
      fake().capture_broken = true;
      return kCaptureUnsupported;
    }
    return current == nullptr ? kInvalidContext : kSuccess;
  }
  int refusal_of_launch() const {
    if (fake().lost != kSuccess) return fake().lost;
    return current == nullptr ? kInvalidContext : kSuccess;
  }

 private:
  std::lock_guard<std::mutex> lock_;
};

bool inside(Pointer begin, size_t bytes) {
  auto next = fake().allocations.upper_bound(begin);
  if (next == fake().allocations.begin()) return false;
  --next;
  return begin - next->first <= next->second && bytes <= next->second - (begin - next->first);
}

bool counts_down(long* count) { return *count > 0 && --*count == 0; }

int copy(void* to, const void* from, size_t bytes, Pointer device) {
  const Call call;
  if (const int refusal = call.refusal()) return refusal;
  if (!inside(device, bytes)) return kIllegalAddress;
  std::memcpy(to, from, bytes);
  return kSuccess;
}

void* at(Pointer p) { return reinterpret_cast<void*>(p); }

// Runs a launch, which a stream or a graph has come to.
int execute(const Node& node) {
  Fake& f = fake();
  if (counts_down(&f.fails_launch)) {
    f.words = "the card has fallen off the bus";
    return f.lost = kLaunchFailed;
  }
  f.kernels.insert(node.kernel->name);
  if (f.idle || node.kernel->name == f.spoiled) return kSuccess;
  uint8_t* buffers[64] = {};
  for (size_t i = 0; i < node.buffers.size(); ++i) {
    const Pointer p = node.buffers[i];
    if (p != 0 && !inside(p, 0)) return f.lost = kIllegalAddress;
    buffers[i] = static_cast<uint8_t*>(at(p));
  }
  try {
    oxibonsai::gpu::emulator::Options options;
    options.seed = f.seed++;
    oxibonsai::gpu::emulator::launch(*node.kernel, node.grid, node.threads, node.args.data(),
                                     buffers, options);
  } catch (const std::exception& e) {
    f.words = e.what();
    return f.lost = kLaunchFailed;
  }
  return kSuccess;
}

}  // namespace

// ---- The driver.

API int cuInit(unsigned) { return kSuccess; }
API int cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return kSuccess;
}
API int cuGetErrorName(int result, const char** name) {
  static const std::map<int, const char*> names = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
      {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
  };
  const auto found = names.find(result);
  if (found == names.end()) return kInvalidValue;
  *name = found->second;
  return kSuccess;
}
API int cuGetErrorString(int result, const char** text) {
  *text = result == kLaunchFailed ? fake().words.c_str() : "in the words of the driver";
  return kSuccess;
}
API int cuDeviceGetCount(int* count) {
  *count = fake().cards;
  return kSuccess;
}
API int cuDeviceGet(int* device, int index) {
  if (index < 0 || index >= fake().cards) return kInvalidValue;
  *device = index;
  return kSuccess;
}
API int cuDeviceGetName(char* name, int bytes, int device) {
  std::snprintf(name, static_cast<size_t>(bytes), "Emulated card %d", device);
  return kSuccess;
}
API int cuDeviceGetAttribute(int* value, int attribute, int) {
  if (attribute != 75 && attribute != 76) return kInvalidValue;
  *value = attribute == 75 ? fake().generation / 10 : fake().generation % 10;
  return kSuccess;
}
API int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = fake().memory;
  return kSuccess;
}
API int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &fake();
  return fake().lost;
}
API int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
API int cuCtxPushCurrent_v2(void* context) {
  outer.push_back(current);
  current = context;
  return kSuccess;
}
API int cuCtxPopCurrent_v2(void** context) {
  if (outer.empty()) return kInvalidContext;
  *context = current;
  current = outer.back();
  outer.pop_back();
  return kSuccess;
}
API int cuMemGetInfo_v2(size_t* free, size_t* total) {
  const Call call;
  if (const int refusal = call.refusal()) return refusal;
  *free = fake().memory - fake().used;
  *total = fake().memory;
  return kSuccess;
}
API int cuMemAlloc_v2(Pointer* memory, size_t bytes) {
  const Call call;
  if (const int refusal = call.refusal()) return refusal;
  Fake& f = fake();
  ++f.made;
  if (bytes == 0) return kInvalidValue;
  if (counts_down(&f.fails_allocation) || bytes > f.memory - f.used) return kOutOfMemory;
  void* data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (data == nullptr) return kOutOfMemory;
  std::memset(data, 0xEE, bytes);  // fresh memory holds anything
  *memory = reinterpret_cast<Pointer>(data);
  f.allocations[*memory] = bytes;
  f.used += bytes;
  return kSuccess;
}
API int cuMemFree_v2(Pointer memory) {
  const Call call;
  if (current == nullptr) return kInvalidContext;
  const auto found = fake().allocations.find(memory);
  if (found == fake().allocations.end()) return kInvalidValue;
  fake().used -= found->second;
  fake().allocations.erase(found);
  std::free(at(memory));
  return kSuccess;
}
API int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  const Call call;
  if (const int refusal = call.refusal()) return refusal;
  ++fake().made;
  if (counts_down(&fake().fails_allocation)) return kOutOfMemory;
  *memory = std::malloc(bytes);
  return *memory == nullptr ? kOutOfMemory : kSuccess;
}
API int cuMemFreeHost(void* memory) {
  std::free(memory);
  return kSuccess;
}
API int cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t bytes, void*) {
  ++fake().uploads;
  return copy(at(to), from, bytes, to);
}
API int cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t bytes, void*) {
  const int result = copy(to, at(from), bytes, from);
  const Call call;
  fake().fetched += static_cast<uint64_t>(bytes);
  ++fake().downloads;
  return result;
}
API int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void*) {
  if (!inside(from, bytes)) return kIllegalAddress;
  return copy(at(to), at(from), bytes, to);
}
API int cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, void*) {
  const Call call;
  if (const int refusal = call.refusal()) return refusal;
  if (!inside(to, bytes)) return kIllegalAddress;
  std::memset(at(to), value, bytes);
  return kSuccess;
}
API int cuStreamCreate(void** stream, unsigned) {
  *stream = &fake();
  return current == nullptr ? kInvalidContext : kSuccess;
}
API int cuStreamDestroy_v2(void*) { return kSuccess; }
API int cuStreamSynchronize(void*) {
  const Call call;
  ++fake().synchronizations;
  return call.refusal();
}
API int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  const Call call;
  if (const int refusal = call.refusal()) return refusal;
  if (std::memcmp(image, kCubin, sizeof kCubin) != 0) return kInvalidImage;
  *module = &fake();
  return kSuccess;
}
API int cuModuleUnload(void*) { return kSuccess; }
API int cuModuleGetFunction(const void** function, void*, const char* name) {
  *function = find_kernel(name);
  return *function == nullptr ? kNotFound : kSuccess;
}
API int cuLinkCreate_v2(unsigned, int*, void**, void** link) {
  *link = &fake();
  return kSuccess;
}
API int cuLinkAddData_v2(void*, int, void* data, size_t bytes, const char*, unsigned, int*,
                         void**) {
  const auto* text = static_cast<const char*>(data);
  const bool is_ptx =
      bytes > 0 && text[bytes - 1] == '\0' && std::strstr(text, ".version ") != nullptr;
  return is_ptx && !fake().refuses_ptx ? kSuccess : kInvalidImage;
}
API int cuLinkComplete(void*, void** cubin, size_t* bytes) {
  ++fake().compiled;
  *cubin = const_cast<char*>(kCubin);
  *bytes = sizeof kCubin;
  return kSuccess;
}
API int cuLinkDestroy(void*) { return kSuccess; }
API int cuLaunchKernel(const void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned threads, unsigned block_y, unsigned block_z, unsigned, void*,
                       void** parameters, void**) {
  const Call call;
  if (const int refusal = call.refusal_of_launch()) return refusal;
  Fake& f = fake();
  ++f.launched;
  const bool fits = grid_x > 0 && grid_y > 0 && grid_z > 0 && grid_x < 1u << 31 &&
                    grid_y < 1u << 16 && grid_z < 1u << 16 && threads > 0 && threads <= 1024;
  if (!fits || block_y != 1 || block_z != 1) return kInvalidValue;
  const auto& kernel = *static_cast<const Kernel*>(function);
  const auto* args = static_cast<const uint8_t*>(parameters[0]);
  Node node{&kernel, {grid_x, grid_y, grid_z}, threads, {args, args + kernel.arg_bytes}, {}};
  for (int i = 0; i < kernel.buffers; ++i)
    node.buffers.push_back(*static_cast<Pointer*>(parameters[1 + i]));
  if (!capturing) return execute(node);
  f.captured.nodes.push_back(std::move(node));
  return kSuccess;
}

#ifndef FAKE_WITHOUT_GRAPHS
API int cuStreamBeginCapture_v2(void*, int mode) {
  const Call call;
  if (const int refusal = call.refusal()) return refusal;
  if (mode != 1) return kInvalidValue;  // other threads allocate meanwhile
  capturing = true;
  fake().capture_broken = false;
  fake().captured = {};
  return kSuccess;
}
API int cuStreamEndCapture(void*, void** graph) {
  const Call call;
  Fake& f = fake();
  *graph = nullptr;
  if (!capturing) return kCaptureUnmatched;
  capturing = false;
  if (f.capture_broken) return kCaptureInvalidated;
  *graph = *f.graphs.insert(new Graph(std::move(f.captured))).first;
  return kSuccess;
}
API int cuGraphInstantiateWithFlags(void** runnable, void* graph, unsigned long long flags) {
  const Call call;
  if (const int refusal = call.refusal()) return refusal;
  Fake& f = fake();
  if (f.graphs.count(static_cast<Graph*>(graph)) == 0 || flags != 0) return kInvalidValue;
  if (counts_down(&f.fails_graph)) return f.graph_failure;
  *runnable = *f.runnable.insert(new Graph(*static_cast<Graph*>(graph))).first;
  return kSuccess;
}
API int cuGraphLaunch(void* runnable, void*) {
  const Call call;
  if (const int refusal = call.refusal()) return refusal;
  auto* graph = static_cast<Graph*>(runnable);
  if (fake().runnable.count(graph) == 0) return kInvalidValue;
  ++fake().graph_launches;
  for (const Node& node : graph->nodes)
    if (const int failure = execute(node)) return failure;
  return kSuccess;
}
API int cuGraphDestroy(void* graph) {
  const Call call;
  if (fake().graphs.erase(static_cast<Graph*>(graph)) == 0) return kInvalidValue;
  delete static_cast<Graph*>(graph);
  return kSuccess;
}
API int cuGraphExecDestroy(void* runnable) {
  const Call call;
  if (fake().runnable.erase(static_cast<Graph*>(runnable)) == 0) return kInvalidValue;
  delete static_cast<Graph*>(runnable);
  return kSuccess;
}
#endif

// ---- The run-time compiler.

API int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char* const*,
                           const char* const*) {
  *program = &fake();
  return std::strstr(source, "KERNEL(") == nullptr;
}
API int nvrtcDestroyProgram(void**) { return kSuccess; }
API int nvrtcCompileProgram(void*, int count, const char* const* options) {
  bool unfused = false;
  for (int i = 0; i < count; ++i) unfused = unfused || !std::strcmp(options[i], "--fmad=false");
  ++fake().compiled;
  return unfused ? 0 : 6;
}
API int nvrtcGetProgramLogSize(void*, size_t* bytes) {
  *bytes = 1;
  return 0;
}
API int nvrtcGetProgramLog(void*, char* log) {
  *log = '\0';
  return 0;
}
API int nvrtcGetCUBINSize(void*, size_t* bytes) {
  *bytes = sizeof kCubin;
  return 0;
}
API int nvrtcGetCUBIN(void*, char* cubin) {
  std::memcpy(cubin, kCubin, sizeof kCubin);
  return 0;
}
API const char* nvrtcGetErrorString(int) { return "in the words of the compiler"; }

// ---- For tests.

// As after loading, but for what is allocated.
API void fake_reset(void) {
  const Call call;
  Fake& f = fake();
  f.memory = size_t{2} << 30;
  f.generation = 90;
  f.cards = 1;
  f.fails_allocation = f.fails_launch = f.fails_graph = f.made = f.launched = f.compiled = 0;
  f.graph_launches = 0;
  f.graph_failure = kOutOfMemory;
  f.uploads = f.downloads = f.synchronizations = 0;
  capturing = false;
  f.fetched = 0;
  f.lost = kSuccess;
  f.refuses_ptx = f.idle = false;
  f.kernels.clear();
  f.spoiled.clear();
}
API void fake_set_memory(uint64_t bytes) { fake().memory = bytes; }
API void fake_set_generation(int generation) { fake().generation = generation; }
API void fake_set_cards(int count) { fake().cards = count; }
// The n-th allocation from now on fails, or the n-th launch, with which the card is lost.
API void fake_fail_allocation(long n) { fake().fails_allocation = n; }
API void fake_fail_launch(long n) { fake().fails_launch = n; }
// Memory does not suffice for the n-th graph from now on.
API void fake_fail_graph(long n) { fake().fails_graph = n; }
// What it fails with from now on, in place of that.
API void fake_set_graph_failure(int result) { fake().graph_failure = result; }
// As a driver that is older than the embedded PTX, so that the run-time compiler is needed.
API void fake_refuse_ptx(void) { fake().refuses_ptx = true; }
API long fake_allocations(void) { return fake().made; }
API long fake_launches(void) { return fake().launched; }
API long fake_graph_launches(void) { return fake().graph_launches; }
API long fake_graphs(void) {
  return static_cast<long>(fake().graphs.size() + fake().runnable.size());
}
// Whether a context is current in the calling thread.
API bool fake_has_context(void) { return current != nullptr; }
API long fake_uploads(void) { return fake().uploads; }
API long fake_downloads(void) { return fake().downloads; }
API long fake_synchronizations(void) { return fake().synchronizations; }
// Whether launches do nothing from now on, as for counting them where the results do not matter.
API void fake_idle(bool idle) { fake().idle = idle; }
// The same for launches of one kernel.
API void fake_spoil(const char* kernel) { fake().spoiled = kernel; }
// Names, each followed by a space, of all kernels, and of those that ran: valid until the next
// call.
API const char* fake_kernels(void) {
  thread_local std::string names;
  names.clear();
  for (const std::string& name : oxibonsai::gpu::emulator::kernel_names()) names += name + " ";
  return names.c_str();
}
API const char* fake_kernels_run(void) {
  const Call call;
  thread_local std::string names;
  names.clear();
  for (const std::string& name : fake().kernels) names += name + " ";
  return names.c_str();
}
API long fake_compilations(void) { return fake().compiled; }
API uint64_t fake_fetched(void) { return fake().fetched; }
API uint64_t fake_used(void) { return fake().used; }
