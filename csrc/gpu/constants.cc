#include "gpu/constants.h"

#include <algorithm>

namespace oxibonsai::gpu {

Address Constants::put(const graph::Vector& vector) {
  constexpr int64_t kBufferBytes = 1 << 20;
  if (vector == nullptr) return {};
  const auto [found, fresh] = places_.try_emplace(vector);
  if (!fresh) return found->second;
  const auto bytes = static_cast<int64_t>(vector->size() * sizeof(float));
  const int64_t needed = (bytes + 255) / 256 * 256;
  if (buffers_.empty() || used_ + needed > buffers_.back()->bytes()) {
    buffers_.push_back(backend_->allocate(std::max(kBufferBytes, needed)));
    used_ = 0;
  }
  found->second = {buffers_.back().get(), used_};
  backend_->upload(vector->data(), found->second, bytes);
  used_ += needed;
  return found->second;
}

}  // namespace oxibonsai::gpu
