#include "gpu/emulator/emulator_backend.h"

#include <cstring>
#include <new>

namespace oxibonsai::gpu::emulator {
namespace {

class HostBuffer : public Buffer {
 public:
  HostBuffer(int64_t bytes, std::shared_ptr<std::atomic<int64_t>> used)
      : Buffer(bytes),
        used_(std::move(used)),
        data_(static_cast<uint8_t*>(::operator new(static_cast<size_t>(bytes), kAlignment))) {
    *used_ += bytes;
    std::memset(data_, 0xEE, static_cast<size_t>(bytes));
  }
  ~HostBuffer() override {
    ::operator delete(data_, kAlignment);
    *used_ -= bytes();
  }
  uint8_t* data() const { return data_; }

 private:
  static constexpr std::align_val_t kAlignment{256};

  const std::shared_ptr<std::atomic<int64_t>> used_;
  uint8_t* const data_;
};

// `bytes` bytes from there on; DeviceError where the buffer ends before.
uint8_t* resolve(Address at, int64_t bytes) {
  if (at.buffer == nullptr || at.offset < 0 || bytes < 0 || at.offset > at.buffer->bytes() - bytes)
    throw DeviceError("memory outside of a buffer");
  return static_cast<HostBuffer*>(at.buffer)->data() + at.offset;
}

}  // namespace

EmulatorBackend::EmulatorBackend(Options options, Capabilities capabilities, int64_t memory)
    : options_(options), capabilities_(capabilities), memory_(memory) {}

BufferPtr EmulatorBackend::allocate(int64_t bytes) {
  if (bytes > memory().free)
    throw CapacityError("emulator: " + std::to_string(bytes) + " bytes were asked for and " +
                        std::to_string(memory().free) + " are free");
  return std::make_shared<HostBuffer>(bytes, used_);
}

void EmulatorBackend::upload(const void* from, Address to, int64_t bytes) {
  std::memcpy(resolve(to, bytes), from, static_cast<size_t>(bytes));
}

void EmulatorBackend::download(Address from, void* to, int64_t bytes) {
  std::memcpy(to, resolve(from, bytes), static_cast<size_t>(bytes));
}

void EmulatorBackend::copy(Address from, Address to, int64_t bytes) {
  std::memcpy(resolve(to, bytes), resolve(from, bytes), static_cast<size_t>(bytes));
}

void EmulatorBackend::fill(Address to, uint8_t value, int64_t bytes) {
  std::memset(resolve(to, bytes), value, static_cast<size_t>(bytes));
}

void EmulatorBackend::launch(const Launch& l) {
  const Kernel* kernel = find_kernel(l.kernel);
  if (kernel == nullptr) throw DeviceError(std::string("there is no kernel ") + l.kernel);
  if (kernel->arg_bytes != l.arg_bytes || kernel->buffers != l.buffer_count)
    throw DeviceError(std::string("kernel ") + l.kernel + ": other parameters");
  if (l.grid.x > INT32_MAX || l.grid.y > UINT16_MAX || l.grid.z > UINT16_MAX)
    throw DeviceError(std::string("kernel ") + l.kernel + ": a grid that no card takes");
  std::vector<uint8_t*> buffers;
  for (int i = 0; i < l.buffer_count; ++i)
    buffers.push_back(l.buffers[i].buffer == nullptr ? nullptr : resolve(l.buffers[i], 0));
  emulator::launch(*kernel, l.grid, l.threads, l.args, buffers.data(), options_);
}

}  // namespace oxibonsai::gpu::emulator
