#pragma once

#include <cstddef>
#include <cstdint>

namespace oxibonsai {

// Zero-filled memory straight from the system, in huge pages where it has them: reading a
// gigabyte through 4 KiB pages costs a tenth to a fifth of the bandwidth in address translation.
// CapacityError where the system refuses.
class HugeBuffer {
 public:
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  uint8_t* data() { return data_; }

 private:
  uint8_t* data_ = nullptr;
  uint8_t* mapped_ = nullptr;
  size_t mapped_size_ = 0;
};

}  // namespace oxibonsai
