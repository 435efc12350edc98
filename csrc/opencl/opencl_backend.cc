#include "opencl/opencl_backend.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "opencl/check_device.h"
#include "opencl/devices.h"
#include "opencl/programs.h"

namespace oxibonsai::opencl {
namespace {

constexpr uint64_t kAlignment = 256;  // of Backend::allocate(); OpenCL promises no more than 128

// Memory with addresses that kernels take with any offset: that of cl_intel_unified_shared_memory,
// else coarse-grained shared virtual memory. The calls of both have the same parameters.
class MemoryCalls {
 public:
  MemoryCalls(const Driver& driver, const DeviceInfo& device)
      : set_argument(driver.clSetKernelArgSVMPointer),
        copy(driver.clEnqueueSVMMemcpy),
        fill(driver.clEnqueueSVMMemFill),
        driver_(driver),
        device_(device.device) {
    if (!has_device_memory(device)) return;
    const auto find = [&](auto* call, const char* name) {
      void* found = driver.clGetExtensionFunctionAddressForPlatform(device.platform, name);
      if (found == nullptr)
        throw UnsupportedError(std::string("the driver names cl_intel_unified_shared_memory, but "
                                           "has no ") +
                               name);
      *call = reinterpret_cast<std::remove_pointer_t<decltype(call)>>(found);
    };
    find(&allocate_, "clDeviceMemAllocINTEL");
    find(&free_, "clMemBlockingFreeINTEL");
    find(&set_argument, "clSetKernelArgMemPointerINTEL");
    find(&copy, "clEnqueueMemcpyINTEL");
    find(&fill, "clEnqueueMemFillINTEL");
  }

  // Null where there is too little.
  void* allocate(ContextHandle* context, size_t bytes) const {
    constexpr uint64_t kReadWrite = 1 << 0;
    if (allocate_ == nullptr) return driver_.clSVMAlloc(context, kReadWrite, bytes, 0);
    Result result = kSuccess;
    void* memory = allocate_(context, device_, nullptr, bytes, 0, &result);
    return result == kSuccess ? memory : nullptr;
  }
  // Nothing may use the memory any more.
  void free(ContextHandle* context, void* memory) const {
    if (free_ == nullptr)
      driver_.clSVMFree(context, memory);
    else
      free_(context, memory);
  }

  decltype(Driver::clSetKernelArgSVMPointer) set_argument;
  decltype(Driver::clEnqueueSVMMemcpy) copy;
  decltype(Driver::clEnqueueSVMMemFill) fill;

 private:
  const Driver& driver_;
  DeviceHandle* const device_;
  void* (*allocate_)(ContextHandle*, DeviceHandle*, const uint64_t*, size_t, uint32_t,
                     Result*) = nullptr;
  Result (*free_)(ContextHandle*, void*) = nullptr;
};

// A context with one queue, on which everything runs in order.
struct Context {
  explicit Context(const DeviceInfo& info)
      : driver(Driver::get()), device(info), memory(driver, info) {
    Result result = kSuccess;
    context = driver.clCreateContext(nullptr, 1, &device.device, nullptr, nullptr, &result);
    driver.check(result, "clCreateContext");
    queue = driver.clCreateCommandQueueWithProperties(context, device.device, nullptr, &result);
    if (result != kSuccess) {
      driver.clReleaseContext(context);
      driver.check(result, "clCreateCommandQueueWithProperties");
    }
  }
  ~Context() {
    driver.clReleaseCommandQueue(queue);
    driver.clReleaseContext(context);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver;
  const DeviceInfo device;
  const MemoryCalls memory;
  ContextHandle* context = nullptr;
  QueueHandle* queue = nullptr;
  std::atomic<int64_t> used{0};  // bytes of buffers
};

using ContextPtr = std::shared_ptr<Context>;

// OpenCL does not say what is free: what others use is not known.
gpu::Memory memory_of(const Context& context) {
  const auto total = static_cast<int64_t>(context.device.memory);
  return {total, total - std::min(total, context.used.load())};
}

class OpenClBuffer : public gpu::Buffer {
 public:
  OpenClBuffer(ContextPtr context, int64_t bytes) : Buffer(bytes), context_(std::move(context)) {
    const uint64_t room = static_cast<uint64_t>(bytes) + kAlignment;
    if (room <= context_->device.largest_buffer && bytes <= memory_of(*context_).free)
      memory_ = context_->memory.allocate(context_->context, room);
    if (memory_ == nullptr)
      throw CapacityError("OpenCL refused a buffer of " + std::to_string(bytes) + " bytes; of " +
                          std::to_string(context_->device.memory) + " this process uses " +
                          std::to_string(context_->used.load()) + ", and one buffer has at most " +
                          std::to_string(context_->device.largest_buffer));
    context_->used += bytes;
  }
  ~OpenClBuffer() override {
    context_->driver.clFinish(context_->queue);  // an error shows in the next call that can fail
    context_->memory.free(context_->context, memory_);
    context_->used -= bytes();
  }

  uint8_t* memory() const {
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    return static_cast<uint8_t*>(memory_) + (kAlignment - address % kAlignment) % kAlignment;
  }

 private:
  const ContextPtr context_;
  void* memory_ = nullptr;
};

uint8_t* resolve(gpu::Address at, int64_t bytes) {
  return gpu::buffer_of<OpenClBuffer>(at, bytes).memory() + at.offset;
}

class OpenClBackend : public gpu::Backend {
 public:
  OpenClBackend(int index, ContextPtr context, const std::string& folder,
                const std::function<std::string(std::string_view)>& unpack)
      : name_("opencl:" + std::to_string(index)),
        context_(std::move(context)),
        programs_(context_->driver, context_->device, context_->context, folder, unpack) {}

  std::string name() const override { return name_; }
  std::string device() const override {
    const DeviceInfo& d = context_->device;
    return d.name + ", " + d.platform_name + " " + d.driver_version;
  }
  gpu::Capabilities capabilities() const override { return {}; }
  gpu::Memory memory() const override { return memory_of(*context_); }

  gpu::BufferPtr allocate(int64_t bytes) override {
    return std::make_shared<OpenClBuffer>(context_, bytes);
  }

  void upload(const void* from, gpu::Address to, int64_t bytes) override {
    copy_bytes(resolve(to, bytes), from, bytes, /*blocking=*/1);
  }
  void download(gpu::Address from, void* to, int64_t bytes) override {
    copy_bytes(to, resolve(from, bytes), bytes, /*blocking=*/1);
  }
  void copy(gpu::Address from, gpu::Address to, int64_t bytes) override {
    copy_bytes(resolve(to, bytes), resolve(from, bytes), bytes, /*blocking=*/0);
  }
  void fill(gpu::Address to, uint8_t value, int64_t bytes) override {
    uint8_t* target = resolve(to, bytes);
    if (bytes == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    driver().check(context_->memory.fill(context_->queue, target, &value, 1,
                                         static_cast<size_t>(bytes), 0, nullptr, nullptr),
                   "filling memory");
  }

  void launch(const gpu::Launch& l) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    KernelHandle* kernel = programs_.get(l.kernel, l.threads);
    const auto check = [&](Result result, const char* what) {
      if (result != kSuccess) driver().check(result, std::string(what) + l.kernel);
    };
    check(driver().clSetKernelArg(kernel, 0, l.arg_bytes, l.args), "constants of ");
    for (int i = 0; i < l.buffer_count; ++i) {
      const gpu::Address at = l.buffers[i];
      const void* pointer = at.buffer == nullptr ? nullptr : resolve(at, 0);
      check(context_->memory.set_argument(kernel, static_cast<uint32_t>(i + 1), pointer),
            "buffers of ");
    }
    const size_t block[3] = {l.threads, 1, 1};
    const size_t threads[3] = {size_t{l.grid.x} * l.threads, l.grid.y, l.grid.z};
    check(driver().clEnqueueNDRangeKernel(context_->queue, kernel, 3, nullptr, threads, block, 0,
                                          nullptr, nullptr),
          "launch of ");
  }

  void synchronize() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    driver().check(driver().clFinish(context_->queue), "clFinish");
  }

 private:
  const Driver& driver() const { return context_->driver; }

  void copy_bytes(void* to, const void* from, int64_t bytes, uint32_t blocking) {
    if (bytes == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    driver().check(context_->memory.copy(context_->queue, blocking, to, from,
                                         static_cast<size_t>(bytes), 0, nullptr, nullptr),
                   "copying memory");
  }

  const std::string name_;
  const ContextPtr context_;
  std::mutex mutex_;  // one call at a time: the order of calls is the order of work
  Programs programs_;
};

}  // namespace

gpu::BackendPtr open_device(int index, const std::string& folder,
                            const std::function<std::string(std::string_view)>& unpack) {
  const std::vector<DeviceInfo> all = devices();
  if (index < 0 || static_cast<size_t>(index) >= all.size())
    throw UnsupportedError("this machine has no opencl:" + std::to_string(index) +
                           "; its drivers have " + std::to_string(all.size()) + " devices");
  const DeviceInfo& device = all[static_cast<size_t>(index)];
  if (const std::string lack = missing(device); !lack.empty())
    throw UnsupportedError(device.name + " (" + device.platform_name + ") lacks " + lack);
  auto backend =
      std::make_shared<OpenClBackend>(index, std::make_shared<Context>(device), folder, unpack);
  check_device(*backend);
  return backend;
}

}  // namespace oxibonsai::opencl
