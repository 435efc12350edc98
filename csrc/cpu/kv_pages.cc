#include "cpu/kv_pages.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/memory_size.h"
#include "base/os/os.h"
#include "cpu/kv_layout.h"

namespace oxibonsai::cpu {

KvPages::KvPages(std::vector<graph::PagedLayer> layers, std::vector<KvType> types, int64_t pages)
    : layers_(std::move(layers)),
      types_(std::move(types)),
      page_bytes_(kv_page_bytes(layers_, types_)),
      pages_(pages) {
  int64_t offset = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    layouts_.push_back({kv_layout(types_[i], layers_[i]), offset});
    offset += graph::head_bytes(layouts_.back().layout) * layers_[i].kv_heads;
  }
  if (pages < 1) throw RequestError("a KV cache needs at least one page");
  if (pages > (int64_t{1} << 46) / page_bytes_)
    throw CapacityError("a KV cache of " + std::to_string(pages) + " pages of " +
                        std::to_string(page_bytes_) + " bytes is past any address space");
  const auto bytes = memory_size(pages * page_bytes_);
  base_ = os::reserve_pages(bytes);
  if (base_ == nullptr || !os::commit(base_, bytes)) {
    if (base_ != nullptr) os::free_pages(base_, bytes);
    throw CapacityError("the system refused " + std::to_string(pages * page_bytes_) +
                        " bytes for the KV cache: choose a smaller context");
  }
  os::prefer_huge_pages(base_, bytes);
}

KvPages::~KvPages() { os::free_pages(base_, static_cast<size_t>(pages_ * page_bytes_)); }

uint8_t* KvPages::page(int64_t index) const {
  if (index < 0 || index >= pages_)
    throw RequestError("the KV cache has no page " + std::to_string(index) + "; it has " +
                       std::to_string(pages_));
  return base_ + index * page_bytes_;
}

void KvPages::copy(int64_t source, int64_t target) {
  const uint8_t* from = page(source);
  std::memmove(page(target), from, static_cast<size_t>(page_bytes_));
}

const uint8_t* KvPages::read(int64_t index) const { return page(index); }

void KvPages::write(int64_t index, const uint8_t* data, int64_t bytes) {
  uint8_t* to = page(index);
  if (bytes != page_bytes_)
    throw RequestError("a page of this KV cache has " + std::to_string(page_bytes_) +
                       " bytes, not " + std::to_string(bytes));
  std::memcpy(to, data, static_cast<size_t>(bytes));
}

void KvPages::release(int64_t index) {
  os::discard_pages(page(index), static_cast<size_t>(page_bytes_));
}

}  // namespace oxibonsai::cpu
