#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace oxibonsai {

// Bytes rounded up to whole cache lines, so that what follows begins on one too.
constexpr int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Uninitialised memory on a 64-byte boundary, the width of the widest vector and of a cache line.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    data_ = static_cast<uint8_t*>(::operator new(static_cast<size_t>(aligned(bytes)), kAlignment));
  }
  ~AlignedBuffer() { ::operator delete(data_, kAlignment); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace oxibonsai
