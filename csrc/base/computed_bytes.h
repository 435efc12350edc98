#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/data_owner.h"

namespace oxibonsai {

// Bytes that a function writes when somebody holds them, and that take no memory when nobody does.
// Their addresses stay the same: whoever reads bytes, of whichever owner, holds them meanwhile.
class ComputedBytes : public DataOwner, public std::enable_shared_from_this<ComputedBytes> {
 public:
  using Write = std::function<void(uint8_t* data)>;

  // RequestError where there are no addresses for so many bytes.
  static std::shared_ptr<const ComputedBytes> make(int64_t size, Write write);
  ~ComputedBytes() override;
  ComputedBytes(const ComputedBytes&) = delete;
  ComputedBytes& operator=(const ComputedBytes&) = delete;

  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }

  // Writes the computed bytes that `data` is in, unless somebody holds them already; they stay
  // until the result goes. Null where the bytes are no computed ones. What the function throws is
  // passed on. Waits while another thread's function writes: not to be called with the GIL.
  static std::shared_ptr<const void> hold(const void* data);

  void release(const uint8_t*, int64_t) const override {}
  // What is written once can be written again.
  bool maps_file() const override { return true; }

 private:
  ComputedBytes(int64_t size, Write write);
  std::shared_ptr<const void> hold_these() const;
  void let_go() const;
  void clear() const;

  const int64_t size_;
  const Write write_;
  uint8_t* data_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::condition_variable written_;
  mutable bool writing_ = false;
  mutable int64_t holders_ = 0;
};

}  // namespace oxibonsai
