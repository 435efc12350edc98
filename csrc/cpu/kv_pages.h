#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/kv_layout.h"
#include "graph/state.h"

namespace oxibonsai::cpu {

// Memory of a paged cache of keys and values: a pool of pages. Address space is reserved for all
// pages at once, memory is taken as pages are first written. The engine decides which sequence owns
// which page, and makes sure that no step runs while a page is copied, written or released.
class KvPages {
 public:
  // `types` holds one type for each layer.
  KvPages(std::vector<graph::PagedLayer> layers, std::vector<KvType> types, int64_t pages);
  ~KvPages();
  KvPages(const KvPages&) = delete;
  KvPages& operator=(const KvPages&) = delete;

  const std::vector<graph::PagedLayer>& layers() const { return layers_; }
  const std::vector<KvType>& types() const { return types_; }
  const KvLayout& layout(int layer) const { return layouts_[static_cast<size_t>(layer)].layout; }
  int64_t pages() const { return pages_; }
  int64_t page_bytes() const { return page_bytes_; }

  uint8_t* keys(int64_t page, int layer, int head) const {
    const LayerLayout& p = layouts_[static_cast<size_t>(layer)];
    return base_ + page * page_bytes_ + p.offset +
           head * (p.layout.key_bytes + p.layout.value_bytes);
  }
  uint8_t* values(int64_t page, int layer, int head) const {
    const KvLayout& l = layout(layer);
    return keys(page, layer, head) + (l.value_in_key ? 0 : l.key_bytes);
  }

  // These throw RequestError for a page that does not exist.
  void copy(int64_t source, int64_t target);
  const uint8_t* read(int64_t page) const;                       // page_bytes() bytes
  void write(int64_t page, const uint8_t* data, int64_t bytes);  // RequestError: another size
  // Gives the memory of a page back to the system, as far as whole pages of the system go. What the
  // page held is lost.
  void release(int64_t page);

 private:
  // Where a layer lies in a page.
  struct LayerLayout {
    KvLayout layout;
    int64_t offset;
  };

  uint8_t* page(int64_t index) const;

  const std::vector<graph::PagedLayer> layers_;
  const std::vector<KvType> types_;
  const int64_t page_bytes_;
  const int64_t pages_;
  std::vector<LayerLayout> layouts_;
  uint8_t* base_;
};

}  // namespace oxibonsai::cpu
