#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/huge_buffer.h"
#include "graph/state.h"

namespace oxibonsai::cpu {

// Bytes of one slot with entries of so many floats. RequestError where there is no state.
int64_t slot_bytes(const std::vector<int64_t>& entries);

// Recurrent state: a fixed number of slots, each of which holds the state of all layers of one
// sequence. Memory is taken as slots are first written. The engine decides which sequence has which
// slot, and makes sure that no step runs while a slot is copied, read or written.
class Slots {
 public:
  // RequestError where there is no slot or no state.
  Slots(std::vector<int64_t> entries, int64_t slots);

  const std::vector<int64_t>& entries() const { return entries_; }
  int64_t slots() const { return slots_; }
  int64_t slot_bytes() const { return stride_ * static_cast<int64_t>(sizeof(float)); }

  // The state of one entry of StateSpec::slot.
  float* state(int64_t slot, int entry) const {
    return base_ + slot * stride_ + offsets_[static_cast<size_t>(entry)];
  }

  // These throw RequestError for a slot that does not exist.
  void copy(int64_t source, int64_t target);
  const uint8_t* read(int64_t slot) const;                       // slot_bytes() bytes
  void write(int64_t slot, const uint8_t* data, int64_t bytes);  // RequestError: another size

 private:
  float* slot(int64_t index) const;

  const std::vector<int64_t> entries_;
  const int64_t slots_;
  std::vector<int64_t> offsets_;  // of each entry in a slot, in floats
  int64_t stride_ = 0;            // floats of a slot
  std::optional<HugeBuffer> memory_;
  float* base_ = nullptr;
};

}  // namespace oxibonsai::cpu
