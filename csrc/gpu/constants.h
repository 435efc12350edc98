#pragma once

#include <map>
#include <vector>

#include "gpu/backend.h"
#include "graph/value.h"

namespace oxibonsai::gpu {

// Vectors of a graph (weights of norms, biases, factors) on the device, each once, many in a
// buffer.
class Constants {
 public:
  explicit Constants(BackendPtr backend) : backend_(std::move(backend)) {}

  // Null where there is no vector.
  Address put(const graph::Vector& vector);

 private:
  const BackendPtr backend_;
  std::vector<BufferPtr> buffers_;
  int64_t used_ = 0;  // of the last one
  std::map<graph::Vector, Address> places_;
};

}  // namespace oxibonsai::gpu
