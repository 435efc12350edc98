#include "gpu/state.h"

#include <string>
#include <utility>

namespace oxibonsai::gpu {
namespace {

// Floats of a slot's entries are rounded up to whole cache lines of the CPU, as there.
constexpr int64_t kLineFloats = 16;

}  // namespace

KvPages::KvPages(BackendPtr backend, std::vector<graph::PagedLayer> layers,
                 std::vector<graph::KvType> types, int64_t pages)
    : backend_(std::move(backend)),
      layers_(std::move(layers)),
      types_(std::move(types)),
      page_bytes_(graph::kv_page_bytes(layers_, types_)),
      pages_(pages) {
  if (pages < 1) throw RequestError("a KV cache needs at least one page");
  int64_t offset = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    layouts_.push_back(graph::kv_layout(types_[i], layers_[i]));
    offsets_.push_back(offset);
    offset += graph::head_bytes(layouts_.back()) * layers_[i].kv_heads;
  }
  const int64_t free = backend_->memory().free;
  if (pages > free / page_bytes_)
    throw CapacityError("a KV cache of " + std::to_string(pages) + " pages of " +
                        std::to_string(page_bytes_) + " bytes does not fit into the " +
                        std::to_string(free) + " free bytes of " + backend_->name() +
                        ": choose a smaller context");
  memory_ = backend_->allocate(pages * page_bytes_);
}

Address KvPages::page(int64_t index) const {
  if (index < 0 || index >= pages_)
    throw RequestError("the KV cache has no page " + std::to_string(index) + "; it has " +
                       std::to_string(pages_));
  return data() + index * page_bytes_;
}

void KvPages::copy(int64_t source, int64_t target) {
  const Address from = page(source), to = page(target);
  if (source != target) backend_->copy(from, to, page_bytes_);
}

std::vector<uint8_t> KvPages::read(int64_t index) const {
  std::vector<uint8_t> bytes(static_cast<size_t>(page_bytes_));
  backend_->download(page(index), bytes.data(), page_bytes_);
  return bytes;
}

void KvPages::write(int64_t index, const uint8_t* data, int64_t bytes) {
  const Address to = page(index);
  if (bytes != page_bytes_)
    throw RequestError("a page of this KV cache has " + std::to_string(page_bytes_) +
                       " bytes, not " + std::to_string(bytes));
  backend_->upload(data, to, bytes);
}

Slots::Slots(BackendPtr backend, std::vector<int64_t> entries, int64_t slots)
    : backend_(std::move(backend)), entries_(std::move(entries)), slots_(slots) {
  if (entries_.empty() || slots < 1)
    throw RequestError("recurrent state needs at least one entry and one slot");
  for (const int64_t floats : entries_) {
    if (floats < 1) throw RequestError("an entry of recurrent state needs at least one float");
    offsets_.push_back(stride_);
    stride_ += (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
  }
  const int64_t free = backend_->memory().free;
  if (slots > free / slot_bytes())
    throw CapacityError(std::to_string(slots) + " slots of " + std::to_string(slot_bytes()) +
                        " bytes do not fit into the " + std::to_string(free) + " free bytes of " +
                        backend_->name());
  memory_ = backend_->allocate(slots * slot_bytes());
  backend_->fill(data(), 0, slots * slot_bytes());
}

Address Slots::slot(int64_t index) const {
  if (index < 0 || index >= slots_)
    throw RequestError("there is no slot " + std::to_string(index) +
                       " of recurrent state; there are " + std::to_string(slots_));
  return data() + index * slot_bytes();
}

void Slots::copy(int64_t source, int64_t target) {
  const Address from = slot(source), to = slot(target);
  if (source != target) backend_->copy(from, to, slot_bytes());
}

std::vector<uint8_t> Slots::read(int64_t index) const {
  std::vector<uint8_t> bytes(static_cast<size_t>(slot_bytes()));
  backend_->download(slot(index), bytes.data(), slot_bytes());
  return bytes;
}

void Slots::write(int64_t index, const uint8_t* data, int64_t bytes) {
  const Address to = slot(index);
  if (bytes != slot_bytes())
    throw RequestError("a slot of this state has " + std::to_string(slot_bytes()) + " bytes, not " +
                       std::to_string(bytes));
  backend_->upload(data, to, bytes);
}

}  // namespace oxibonsai::gpu
