#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace oxibonsai {

// Zero-filled memory straight from the system, in huge pages where it has them: reading a
// gigabyte through 4 KiB pages costs a tenth to a fifth of the bandwidth in address translation.
// CapacityError where the system refuses.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapped_(std::exchange(other.mapped_, nullptr)),
        mapped_size_(std::exchange(other.mapped_size_, 0)) {}
  HugeBuffer& operator=(HugeBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    std::swap(mapped_size_, other.mapped_size_);
    return *this;
  }

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  void* mapped_ = nullptr;
  size_t mapped_size_ = 0;
};

}  // namespace oxibonsai
