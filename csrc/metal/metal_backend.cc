#include "metal/metal_backend.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "gpu/embedded_kernels.h"
#include "metal/bridge.h"

namespace oxibonsai::metal {
namespace {

// Takes over a text of the bridge's; empty for null.
std::string take(char* text) {
  if (text == nullptr) return "";
  std::string copy = text;
  std::free(text);
  return copy;
}

void check(char* error, const char* what) {
  if (error != nullptr) throw DeviceError(std::string(what) + ": " + take(error));
}

using DevicePtr = std::shared_ptr<OxiMetalDevice>;

class MetalBuffer : public gpu::Buffer {
 public:
  MetalBuffer(DevicePtr device, int64_t bytes)
      : Buffer(bytes),
        device_(std::move(device)),
        memory_(oxi_metal_allocate(device_.get(), static_cast<uint64_t>(bytes > 0 ? bytes : 1))) {
    if (memory_ == nullptr)
      throw CapacityError("Metal refused " + std::to_string(bytes) + " bytes; this process uses " +
                          std::to_string(oxi_metal_used_bytes(device_.get())) +
                          " of the recommended " +
                          std::to_string(oxi_metal_recommended_bytes(device_.get())));
  }
  ~MetalBuffer() override { oxi_metal_free(memory_); }

  OxiMetalBuffer* memory() const { return memory_; }

 private:
  const DevicePtr device_;
  OxiMetalBuffer* const memory_;
};

OxiMetalBuffer* memory_of(gpu::Address at, int64_t bytes) {
  return gpu::buffer_of<MetalBuffer>(at, bytes).memory();
}

uint8_t* contents(gpu::Address at, int64_t bytes) {
  return static_cast<uint8_t*>(oxi_metal_contents(memory_of(at, bytes))) + at.offset;
}

// Memory is shared with the processor, so what reads or writes it waits for the GPU first.
class MetalBackend : public gpu::Backend {
 public:
  explicit MetalBackend(DevicePtr device)
      : device_(std::move(device)), device_name_(take(oxi_metal_name(device_.get()))) {}

  std::string name() const override { return "metal"; }
  std::string device() const override { return device_name_; }
  gpu::Capabilities capabilities() const override { return {}; }
  gpu::Memory memory() const override {
    const auto total = static_cast<int64_t>(oxi_metal_recommended_bytes(device_.get()));
    const auto used = static_cast<int64_t>(oxi_metal_used_bytes(device_.get()));
    return {total, total > used ? total - used : 0};
  }

  gpu::BufferPtr allocate(int64_t bytes) override {
    return std::make_shared<MetalBuffer>(device_, bytes);
  }

  void upload(const void* from, gpu::Address to, int64_t bytes) override {
    uint8_t* target = contents(to, bytes);
    wait();
    std::memcpy(target, from, static_cast<size_t>(bytes));
  }
  void download(gpu::Address from, void* to, int64_t bytes) override {
    const uint8_t* source = contents(from, bytes);
    wait();
    std::memcpy(to, source, static_cast<size_t>(bytes));
  }
  void copy(gpu::Address from, gpu::Address to, int64_t bytes) override {
    const uint8_t* source = contents(from, bytes);
    uint8_t* target = contents(to, bytes);
    wait();
    std::memcpy(target, source, static_cast<size_t>(bytes));
  }
  void fill(gpu::Address to, uint8_t value, int64_t bytes) override {
    uint8_t* target = contents(to, bytes);
    wait();
    std::memset(target, value, static_cast<size_t>(bytes));
  }

  void launch(const gpu::Launch& l) override {
    std::vector<OxiMetalBuffer*> buffers;
    std::vector<uint64_t> offsets;
    for (int i = 0; i < l.buffer_count; ++i) {
      const gpu::Address at = l.buffers[i];
      buffers.push_back(at.buffer == nullptr ? nullptr : memory_of(at, 0));
      offsets.push_back(static_cast<uint64_t>(at.offset));
    }
    const uint32_t grid[3] = {l.grid.x, l.grid.y, l.grid.z};
    const std::lock_guard<std::mutex> lock(mutex_);
    char* error = nullptr;
    oxi_metal_launch(device_.get(), l.kernel, grid, l.threads, l.args, l.arg_bytes, buffers.data(),
                     offsets.data(), l.buffer_count, &error);
    check(error, l.kernel);
    waiting_ = true;
  }

  void synchronize() override { wait(); }

 private:
  void wait() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!waiting_) return;
    waiting_ = false;
    char* error = nullptr;
    oxi_metal_synchronize(device_.get(), &error);
    check(error, "Metal");
  }

  const DevicePtr device_;
  const std::string device_name_;
  std::mutex mutex_;
  bool waiting_ = false;  // launches were encoded that nobody has waited for
};

}  // namespace

gpu::BackendPtr open_metal() {
  char* error = nullptr;
  const DevicePtr device(oxi_metal_open(std::string(gpu::kernel_source()).c_str(), &error),
                         [](OxiMetalDevice* d) {
                           if (d != nullptr) oxi_metal_close(d);
                         });
  if (device == nullptr) throw UnsupportedError(take(error));
  return std::make_shared<MetalBackend>(device);
}

}  // namespace oxibonsai::metal
