#include "cuda/cuda_backend.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "cuda/driver.h"
#include "cuda/graph_cache.h"

namespace oxibonsai::cuda {
namespace {

// Uploads up to so many bytes go through pinned memory and are not waited for: a step has several.
constexpr int64_t kStagedBytes = 64 << 10;
constexpr int64_t kStagingBytes = 4 << 20;

constexpr unsigned kStreamNonBlocking = 1;

// A context that is current in this thread as long as this lives; what the caller's own was, as of
// another library, is so again afterwards.
class Current {
 public:
  Current(const Driver& driver, ContextHandle* context) : driver_(driver) {
    driver_.check(driver_.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
  }
  ~Current() {
    ContextHandle* popped = nullptr;
    driver_.cuCtxPopCurrent_v2(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  const Driver* operator->() const { return &driver_; }

 private:
  const Driver& driver_;
};

// The primary context of a card with one stream, on which everything runs in order.
class Context {
 public:
  Context(const Driver& driver, DeviceId device) : driver_(driver), device_(device) {
    driver_.check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
    try {
      const Current current = use();
      driver_.check(driver_.cuStreamCreate(&stream_, kStreamNonBlocking), "cuStreamCreate");
    } catch (...) {
      driver_.cuDevicePrimaryCtxRelease_v2(device_);
      throw;
    }
  }
  ~Context() {
    try {
      use()->cuStreamDestroy_v2(stream_);
    } catch (const Error&) {  // the card is lost
    }
    driver_.cuDevicePrimaryCtxRelease_v2(device_);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // A context is current in one thread; steps come from any.
  Current use() const { return {driver_, context_}; }
  const Driver& driver() const { return driver_; }
  StreamHandle* stream() const { return stream_; }

 private:
  const Driver& driver_;
  const DeviceId device_;
  ContextHandle* context_ = nullptr;
  StreamHandle* stream_ = nullptr;
};

using ContextPtr = std::shared_ptr<const Context>;

gpu::Memory memory_of(const Context& context) {
  size_t free = 0, total = 0;
  const Current d = context.use();
  d->check(d->cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return {static_cast<int64_t>(total), static_cast<int64_t>(free)};
}

class CudaBuffer : public gpu::Buffer {
 public:
  CudaBuffer(ContextPtr context, int64_t bytes) : Buffer(bytes), context_(std::move(context)) {
    const Current d = context_->use();
    const Result result = d->cuMemAlloc_v2(&memory_, static_cast<size_t>(bytes > 0 ? bytes : 1));
    if (result == kOutOfMemory)
      throw CapacityError("the card has " + std::to_string(memory_of(*context_).free) +
                          " bytes free, " + std::to_string(bytes) +
                          " were asked for: " + d->describe(result));
    d->check(result, "cuMemAlloc");
  }
  ~CudaBuffer() override {
    try {
      context_->use()->cuMemFree_v2(memory_);
    } catch (const Error&) {  // the card is lost, and its memory with it
    }
  }

  DevicePointer memory() const { return memory_; }

 private:
  const ContextPtr context_;
  DevicePointer memory_ = 0;
};

DevicePointer resolve(gpu::Address at, int64_t bytes) {
  return gpu::buffer_of<CudaBuffer>(at, bytes).memory() + static_cast<DevicePointer>(at.offset);
}

// Pinned memory that small uploads pass through, used from its begin to its end and over again.
class Staging {
 public:
  explicit Staging(ContextPtr context) : context_(std::move(context)) {
    const Current d = context_->use();
    d->check(d->cuMemHostAlloc(&memory_, kStagingBytes, 0), "cuMemHostAlloc");
  }
  ~Staging() {
    try {
      context_->use()->cuMemFreeHost(memory_);
    } catch (const Error&) {  // the card is lost
    }
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // A place for at most kStagedBytes that nothing on its way to the card uses.
  void* take(int64_t bytes) {
    if (used_ + bytes > kStagingBytes) {
      const Current d = context_->use();
      d->check(d->cuStreamSynchronize(context_->stream()), "cuStreamSynchronize");
      used_ = 0;
    }
    void* place = static_cast<char*>(memory_) + used_;
    used_ += bytes;
    return place;
  }

 private:
  const ContextPtr context_;
  void* memory_ = nullptr;
  int64_t used_ = 0;
};

// A run of launches as a graph saves the host's time from about so many on.
constexpr size_t kLeastGraph = 4;

// Why launches are made one by one; empty: they are not.
std::string graphs_refusal(const Driver& d) {
  const char* wish = std::getenv("OXIBONSAI_CUDA_GRAPHS");
  const std::string wanted = wish == nullptr || *wish == '\0' ? "1" : wish;
  if (wanted == "0") return "OXIBONSAI_CUDA_GRAPHS=0";
  if (wanted != "1") throw RequestError("OXIBONSAI_CUDA_GRAPHS is " + wanted + "; it is 0 or 1");
  return d.has_graphs ? "" : "the driver is older than CUDA 11.4";
}

template <class T>
void append(std::string* bytes, const T& value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

class CudaBackend : public gpu::Backend {
 public:
  CudaBackend(int index, CardInfo card, ContextPtr context, const ImageSources& sources)
      : name_("cuda:" + std::to_string(index)),
        card_(std::move(card)),
        context_(std::move(context)),
        no_graphs_(graphs_refusal(context_->driver())),
        staging_(context_),
        graphs_(context_->driver(), context_->stream()) {
    const Current d = context_->use();
    load_kernel_image(context_->driver(), card_.generation, sources,
                      [&](const std::vector<uint8_t>& image) {
                        d->check(d->cuModuleLoadDataEx(&module_, image.data(), 0, nullptr, nullptr),
                                 "cuModuleLoadDataEx");
                      });
  }
  ~CudaBackend() override {
    try {
      const Current d = context_->use();
      graphs_.clear();
      d->cuModuleUnload(module_);
    } catch (const Error&) {  // the card is lost
    }
  }

  std::string name() const override { return name_; }
  std::string device() const override {
    const std::string card = card_.name + ", sm_" + std::to_string(card_.generation);
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::string& reason = no_graphs_.empty() ? graphs_.refusal() : no_graphs_;
    return reason.empty() ? card : card + ", without CUDA graphs (" + reason + ")";
  }
  gpu::Capabilities capabilities() const override {
    gpu::Capabilities c;
    c.last_block = true;
    c.int8_mma = card_.generation >= 80 ? gpu::Int8Mma::k16x8x32 : gpu::Int8Mma::k8x8x16;
    return c;
  }
  gpu::Memory memory() const override { return memory_of(*context_); }

  gpu::BufferPtr allocate(int64_t bytes) override {
    return std::make_shared<CudaBuffer>(context_, bytes);
  }

  void upload(const void* from, gpu::Address to, int64_t bytes) override {
    const DevicePointer target = resolve(to, bytes);
    if (bytes == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const Current d = context_->use();
    const auto size = static_cast<size_t>(bytes);
    const bool staged = bytes <= kStagedBytes;
    if (staged) {
      void* place = staging_.take(bytes);
      std::memcpy(place, from, size);
      from = place;
    }
    d->check(d->cuMemcpyHtoDAsync_v2(target, from, size, context_->stream()), "cuMemcpyHtoDAsync");
    if (!staged) wait();
  }

  void download(gpu::Address from, void* to, int64_t bytes) override {
    const DevicePointer source = resolve(from, bytes);
    if (bytes == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const Current d = context_->use();
    d->check(d->cuMemcpyDtoHAsync_v2(to, source, static_cast<size_t>(bytes), context_->stream()),
             "cuMemcpyDtoHAsync");
    wait();
  }

  void copy(gpu::Address from, gpu::Address to, int64_t bytes) override {
    const DevicePointer source = resolve(from, bytes), target = resolve(to, bytes);
    if (bytes == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const Current d = context_->use();
    d->check(
        d->cuMemcpyDtoDAsync_v2(target, source, static_cast<size_t>(bytes), context_->stream()),
        "cuMemcpyDtoDAsync");
  }

  void fill(gpu::Address to, uint8_t value, int64_t bytes) override {
    const DevicePointer target = resolve(to, bytes);
    if (bytes == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const Current d = context_->use();
    d->check(d->cuMemsetD8Async(target, value, static_cast<size_t>(bytes), context_->stream()),
             "cuMemsetD8Async");
  }

  void launch(const gpu::Launch& l) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Current current = context_->use();
    launch_kernel(l);
  }

  void launch_all(const std::vector<gpu::Launch>& launches) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Current current = context_->use();
    const auto one_by_one = [&] {
      for (const gpu::Launch& l : launches) launch_kernel(l);
    };
    if (!no_graphs_.empty() || launches.size() < kLeastGraph) return one_by_one();
    std::string key;
    for (const gpu::Launch& l : launches) {
      key.append(l.kernel, std::strlen(l.kernel) + 1);
      append(&key, l.grid);
      append(&key, l.threads);
      key.append(static_cast<const char*>(l.args), l.arg_bytes);
      for (int i = 0; i < l.buffer_count; ++i) append(&key, pointer(l.buffers[i]));
    }
    graphs_.run(key, one_by_one);
  }

  void synchronize() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    wait();
  }

 private:
  static DevicePointer pointer(gpu::Address at) {
    return at.buffer == nullptr ? 0 : resolve(at, 0);
  }

  // On the current context.
  void launch_kernel(const gpu::Launch& l) {
    const Driver& d = context_->driver();
    std::vector<DevicePointer> pointers;
    for (int i = 0; i < l.buffer_count; ++i) pointers.push_back(pointer(l.buffers[i]));
    std::vector<void*> parameters = {const_cast<void*>(l.args)};
    for (DevicePointer& p : pointers) parameters.push_back(&p);
    const Result result =
        d.cuLaunchKernel(function(l.kernel), l.grid.x, l.grid.y, l.grid.z, l.threads, 1, 1, 0,
                         context_->stream(), parameters.data(), nullptr);
    if (result != kSuccess) d.check(result, (std::string("launch of ") + l.kernel).c_str());
  }

  void wait() const {
    const Current d = context_->use();
    d->check(d->cuStreamSynchronize(context_->stream()), "cuStreamSynchronize");
  }

  FunctionHandle* function(const char* kernel) {
    FunctionHandle*& found = functions_[kernel];
    if (found == nullptr) {
      const Driver& d = context_->driver();
      d.check(d.cuModuleGetFunction(&found, module_, kernel),
              (std::string("cuModuleGetFunction of ") + kernel).c_str());
    }
    return found;
  }

  const std::string name_;
  const CardInfo card_;
  const ContextPtr context_;
  const std::string no_graphs_;  // why; empty: graphs are used
  mutable std::mutex mutex_;     // one call at a time: the order of calls is the order of work
  Staging staging_;
  GraphCache graphs_;
  ModuleHandle* module_ = nullptr;
  std::map<std::string, FunctionHandle*, std::less<>> functions_;
};

DeviceId device_of(const Driver& d, int index) {
  DeviceId device = 0;
  d.check(d.cuDeviceGet(&device, index), "cuDeviceGet");
  return device;
}

int attribute(const Driver& d, DeviceId device, int which) {
  int value = 0;
  d.check(d.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

CardInfo card_info(const Driver& d, int index) {
  const DeviceId device = device_of(d, index);
  char name[256] = {};
  d.check(d.cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName");
  size_t total = 0;
  d.check(d.cuDeviceTotalMem_v2(&total, device), "cuDeviceTotalMem");
  const int generation = 10 * attribute(d, device, kComputeCapabilityMajor) +
                         attribute(d, device, kComputeCapabilityMinor);
  return {name, generation, static_cast<int64_t>(total)};
}

int card_count(const Driver& d) {
  int count = 0;
  d.check(d.cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

}  // namespace

std::vector<CardInfo> cards() {
  const Driver& d = Driver::get();
  std::vector<CardInfo> all;
  for (int i = 0; i < card_count(d); ++i) all.push_back(card_info(d, i));
  return all;
}

gpu::BackendPtr open_card(int index, const ImageSources& sources) {
  const Driver& d = Driver::get();
  const int count = card_count(d);
  if (index < 0 || index >= count)
    throw UnsupportedError("this machine has no cuda:" + std::to_string(index) +
                           "; its driver finds " + std::to_string(count) + " cards");
  CardInfo card = card_info(d, index);
  if (card.generation < kOldestGeneration)
    throw UnsupportedError(
        card.name + " has compute capability " + std::to_string(card.generation / 10) + "." +
        std::to_string(card.generation % 10) + "; the kernels need 7.5 or later");
  auto context = std::make_shared<const Context>(d, device_of(d, index));
  return std::make_shared<CudaBackend>(index, std::move(card), std::move(context), sources);
}

}  // namespace oxibonsai::cuda
