#pragma once

// What sequences keep between steps, in a device's memory, with the bytes that the CPU's have: what
// is read from one may be written to the other.

#include <cstdint>
#include <vector>

#include "gpu/backend.h"
#include "graph/kv_layout.h"

namespace oxibonsai::gpu {

// A pool of pages of keys and values. All of it is allocated at once.
class KvPages {
 public:
  // `types` holds one type for each layer. CapacityError where the device has too little memory.
  KvPages(BackendPtr backend, std::vector<graph::PagedLayer> layers,
          std::vector<graph::KvType> types, int64_t pages);

  const std::vector<graph::PagedLayer>& layers() const { return layers_; }
  const std::vector<graph::KvType>& types() const { return types_; }
  const graph::KvLayout& layout(int layer) const { return layouts_[static_cast<size_t>(layer)]; }
  int64_t pages() const { return pages_; }
  int64_t page_bytes() const { return page_bytes_; }
  // Where a layer begins in a page.
  int64_t offset(int layer) const { return offsets_[static_cast<size_t>(layer)]; }
  Address data() const { return {memory_.get(), 0}; }

  // These throw RequestError for a page that does not exist.
  void copy(int64_t source, int64_t target);
  std::vector<uint8_t> read(int64_t page) const;                 // page_bytes() bytes
  void write(int64_t page, const uint8_t* data, int64_t bytes);  // RequestError: another size

 private:
  Address page(int64_t index) const;

  const BackendPtr backend_;
  const std::vector<graph::PagedLayer> layers_;
  const std::vector<graph::KvType> types_;
  const int64_t page_bytes_, pages_;
  std::vector<graph::KvLayout> layouts_;
  std::vector<int64_t> offsets_;
  BufferPtr memory_;
};

// Recurrent state: a fixed number of slots, each with the state of all layers of one sequence.
class Slots {
 public:
  Slots(BackendPtr backend, std::vector<int64_t> entries, int64_t slots);

  const std::vector<int64_t>& entries() const { return entries_; }
  int64_t slots() const { return slots_; }
  int64_t slot_bytes() const { return stride_ * static_cast<int64_t>(sizeof(float)); }
  int64_t stride() const { return stride_; }  // floats of a slot
  // Floats before an entry in a slot.
  int64_t offset(int entry) const { return offsets_[static_cast<size_t>(entry)]; }
  Address data() const { return {memory_.get(), 0}; }

  // These throw RequestError for a slot that does not exist.
  void copy(int64_t source, int64_t target);
  std::vector<uint8_t> read(int64_t slot) const;                 // slot_bytes() bytes
  void write(int64_t slot, const uint8_t* data, int64_t bytes);  // RequestError: another size

 private:
  Address slot(int64_t index) const;

  const BackendPtr backend_;
  const std::vector<int64_t> entries_;
  const int64_t slots_;
  std::vector<int64_t> offsets_;
  int64_t stride_ = 0;
  BufferPtr memory_;
};

// Where the sequences of a step keep their state. The caller owns it.
struct State {
  std::vector<KvPages*> pools;  // of pages; a span names its own
  Slots* slots = nullptr;
};

}  // namespace oxibonsai::gpu
