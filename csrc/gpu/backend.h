#pragma once

// What a GPU must offer to run oxibonsai: memory and launches of the kernels in gpu/kernels. CUDA,
// Metal, OpenCL and the emulator implement it; everything above knows no driver.
//
// Work is in order: whatever is asked of a backend sees the effects of everything asked before.
// Errors: CapacityError where memory does not suffice, DeviceError for all else, with the driver's
// words. After a DeviceError the device is lost: no call but those that free is expected to work.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"

namespace oxibonsai::gpu {

// Memory of a device, freed with the object.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(bytes) {}
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  int64_t bytes() const { return bytes_; }
  // RequestError where there are no `bytes` bytes from `offset` on.
  void check_range(int64_t offset, int64_t bytes) const {
    if (offset < 0 || bytes < 0 || offset > bytes_ - bytes)
      throw RequestError("a device's buffer of " + std::to_string(bytes_) + " bytes has no " +
                         std::to_string(bytes) + " at " + std::to_string(offset));
  }

 private:
  const int64_t bytes_;
};

using BufferPtr = std::shared_ptr<Buffer>;

// A place in a buffer. Of no buffer: a kernel gets a null pointer, which it does not follow.
struct Address {
  Buffer* buffer = nullptr;
  int64_t offset = 0;  // bytes
};

// The buffer of an address with `bytes` bytes from there on, which a backend's own class is;
// RequestError where it has fewer.
template <class Own>
const Own& buffer_of(Address at, int64_t bytes) {
  if (at.buffer == nullptr) throw RequestError("an address of no buffer");
  at.buffer->check_range(at.offset, bytes);
  return static_cast<const Own&>(*at.buffer);
}

inline Address operator+(Address at, int64_t bytes) { return {at.buffer, at.offset + bytes}; }

struct Grid {
  uint32_t x = 1, y = 1, z = 1;  // blocks; x below 2^31, y and z below 2^16
};

// Blocks of threads of one kernel: KERNEL(name, Args, ...) of gpu/kernels.
struct Launch {
  const char* kernel;
  Grid grid;
  uint32_t threads;        // of a block; what the kernel says it needs
  const void* args;        // its Args, copied by launch()
  size_t arg_bytes;        // sizeof(Args)
  const Address* buffers;  // of its READ and WRITE parameters, in their order
  int buffer_count;
};

struct Memory {
  int64_t total, free;  // bytes; what others have taken is not free
};

// Products of int8 tiles in hardware; which kernels of gpu/kernels/gemm.h a device has.
enum class Int8Mma : uint8_t {
  kNone,
  k8x8x16,   // gemm_*_mma8: mma.sync.m8n8k16
  k16x8x32,  // gemm_*_mma: mma.sync.m16n8k32 and m16n8k16
};

// What differs between devices of one backend.
struct Capabilities {
  Int8Mma int8_mma = Int8Mma::kNone;
  bool last_block = false;  // count_up() of the dialect: gpu/kernels/last_block.h
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;    // "cuda:0"
  virtual std::string device() const = 0;  // the card, in the driver's words
  virtual Capabilities capabilities() const = 0;
  virtual Memory memory() const = 0;

  // On a 256-byte boundary, with any contents. CapacityError says how much was asked for and free.
  virtual BufferPtr allocate(int64_t bytes) = 0;

  // When upload() returns, `from` may be changed; when download() returns, `to` is filled.
  virtual void upload(const void* from, Address to, int64_t bytes) = 0;
  virtual void download(Address from, void* to, int64_t bytes) = 0;
  // Within the device; the two do not overlap.
  virtual void copy(Address from, Address to, int64_t bytes) = 0;
  virtual void fill(Address to, uint8_t value, int64_t bytes) = 0;

  virtual void launch(const Launch& launch) = 0;
  // The same as launch() for each of them in order.
  virtual void launch_all(const std::vector<Launch>& launches) {
    for (const Launch& l : launches) launch(l);
  }
  // Waits for everything; errors of launches show here at the latest.
  virtual void synchronize() = 0;
};

using BackendPtr = std::shared_ptr<Backend>;

}  // namespace oxibonsai::gpu
