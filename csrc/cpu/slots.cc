#include "cpu/slots.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/memory_size.h"

namespace oxibonsai::cpu {
namespace {

constexpr int64_t kLineFloats = 16;  // of a cache line, so that threads share none

// Floats from one entry to the next.
int64_t entry_stride(int64_t floats) {
  if (floats < 1) throw RequestError("an entry of recurrent state needs at least one float");
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

}  // namespace

int64_t slot_bytes(const std::vector<int64_t>& entries) {
  if (entries.empty()) throw RequestError("recurrent state needs at least one entry");
  int64_t floats = 0;
  for (const int64_t n : entries) floats += entry_stride(n);
  return floats * static_cast<int64_t>(sizeof(float));
}

Slots::Slots(std::vector<int64_t> entries, int64_t slots)
    : entries_(std::move(entries)), slots_(slots) {
  if (entries_.empty() || slots < 1)
    throw RequestError("recurrent state needs at least one entry and one slot");
  for (const int64_t floats : entries_) {
    offsets_.push_back(stride_);
    stride_ += entry_stride(floats);
  }
  if (slots > (int64_t{1} << 40) / slot_bytes())
    throw CapacityError(std::to_string(slots) + " slots of " + std::to_string(slot_bytes()) +
                        " bytes do not fit into memory");
  try {
    memory_.emplace(memory_size(slots * slot_bytes()));
  } catch (const CapacityError&) {
    throw CapacityError("the system refused memory for " + std::to_string(slots) +
                        " slots of recurrent state, " + std::to_string(slot_bytes()) +
                        " bytes each: run fewer sequences at once, or keep fewer snapshots");
  }
  base_ = reinterpret_cast<float*>(memory_->data());
}

float* Slots::slot(int64_t index) const {
  if (index < 0 || index >= slots_)
    throw RequestError("there is no slot " + std::to_string(index) +
                       " of recurrent state; there are " + std::to_string(slots_));
  return base_ + index * stride_;
}

void Slots::copy(int64_t source, int64_t target) {
  const float* from = slot(source);
  std::memmove(slot(target), from, static_cast<size_t>(slot_bytes()));
}

const uint8_t* Slots::read(int64_t index) const {
  return reinterpret_cast<const uint8_t*>(slot(index));
}

void Slots::write(int64_t index, const uint8_t* data, int64_t bytes) {
  float* to = slot(index);
  if (bytes != slot_bytes())
    throw RequestError("a slot of this state has " + std::to_string(slot_bytes()) + " bytes, not " +
                       std::to_string(bytes));
  std::memcpy(to, data, static_cast<size_t>(bytes));
}

}  // namespace oxibonsai::cpu
