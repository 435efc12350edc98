#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"

namespace oxibonsai {

// A number of bytes to allocate as the size_t that it fits into with room to align; on 32-bit
// systems, WebAssembly's among them, not every one does.
inline size_t memory_size(int64_t bytes) {
  constexpr uint64_t kMost = SIZE_MAX - (size_t{4} << 20);
  if (static_cast<uint64_t>(bytes) > kMost)
    throw CapacityError(std::to_string(bytes) +
                        " bytes are more than this system has addresses for");
  return static_cast<size_t>(bytes);
}

}  // namespace oxibonsai
