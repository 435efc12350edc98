#pragma once

#include <cstdint>

namespace oxibonsai {

// What keeps bytes alive that are used in place.
class DataOwner {
 public:
  virtual ~DataOwner() = default;
  // These bytes won't be read soon: memory that holds no more than a copy of a file may go.
  virtual void release(const uint8_t* data, int64_t bytes) const = 0;
  // Whether that is all that the memory holds, so that release() makes room for a copy.
  virtual bool maps_file() const = 0;
};

}  // namespace oxibonsai
