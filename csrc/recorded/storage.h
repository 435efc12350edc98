#pragma once

#include "base/aligned.h"
#include "base/data_owner.h"

namespace oxibonsai::recorded {

// A model's weights and vectors, one after the other, which who loads the model writes into it.
class Storage : public DataOwner {
 public:
  explicit Storage(size_t bytes) : memory_(bytes) {}

  uint8_t* data() { return memory_.data(); }
  const uint8_t* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }

  void release(const uint8_t*, int64_t) const override {}
  bool maps_file() const override { return false; }

 private:
  AlignedBuffer memory_;
};

}  // namespace oxibonsai::recorded
