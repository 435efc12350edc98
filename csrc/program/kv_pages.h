#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernel_table.h"

namespace oxibonsai::program {

// Shape of a paged KV cache. A page holds 64 slots (positions) of every layer and key-value head;
// for each, the two blocks of cpu::KvLayout.
struct KvShape {
  int layers, kv_heads, head_dim;
  cpu::KvType type;
};

// RequestError where a shape is out of range.
int64_t kv_page_bytes(const KvShape& shape);

// Memory of a paged KV cache: a pool of pages. Address space is reserved for all pages at once,
// memory is taken as pages are first written. Which sequence owns which page is the engine's
// business, and so is that no step runs while a page is copied, written or released.
class KvPages {
 public:
  KvPages(const KvShape& shape, int64_t pages);
  ~KvPages();
  KvPages(const KvPages&) = delete;
  KvPages& operator=(const KvPages&) = delete;

  const KvShape& shape() const { return shape_; }
  const cpu::KvLayout& layout() const { return layout_; }
  int64_t pages() const { return pages_; }
  int64_t page_bytes() const { return page_bytes_; }

  uint8_t* keys(int64_t page, int layer, int head) const {
    return base_ + page * page_bytes_ +
           (static_cast<int64_t>(layer) * shape_.kv_heads + head) *
               (layout_.key_bytes + layout_.value_bytes);
  }
  uint8_t* values(int64_t page, int layer, int head) const {
    return keys(page, layer, head) + layout_.key_bytes;
  }

  // These throw RequestError for a page that does not exist.
  void copy(int64_t source, int64_t target);
  const uint8_t* read(int64_t page) const;                       // page_bytes() bytes
  void write(int64_t page, const uint8_t* data, int64_t bytes);  // RequestError: another size
  // Gives the memory of a page back to the system, as far as whole pages of the system go. What the
  // page held is lost.
  void release(int64_t page);

 private:
  uint8_t* page(int64_t index) const;

  const KvShape shape_;
  const cpu::KvLayout layout_;
  const int64_t page_bytes_;
  const int64_t pages_;
  uint8_t* base_;
};

}  // namespace oxibonsai::program
