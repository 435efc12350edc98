#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernel_table.h"

namespace oxibonsai::program {

// Memory of the paged KV cache. A page holds 64 slots (positions) of every layer and key-value
// head; for each, keys [head_dim, 64] and values [64, head_dim rounded up to 16]. Address space is
// reserved for all pages at once, memory is taken as pages are first written. Which sequence owns
// which page is the engine's business.
class KvPages {
 public:
  KvPages(int layers, int kv_heads, int head_dim, cpu::KvType type, int64_t pages);
  ~KvPages();
  KvPages(const KvPages&) = delete;
  KvPages& operator=(const KvPages&) = delete;

  int layers() const { return layers_; }
  int kv_heads() const { return kv_heads_; }
  int head_dim() const { return head_dim_; }
  int value_stride() const { return value_stride_; }
  cpu::KvType type() const { return type_; }
  int64_t pages() const { return pages_; }
  int64_t page_bytes() const { return page_bytes_; }

  uint8_t* keys(int64_t page, int layer, int head) const {
    return base_ + page * page_bytes_ +
           (static_cast<int64_t>(layer) * kv_heads_ + head) * head_bytes_;
  }
  uint8_t* values(int64_t page, int layer, int head) const {
    return keys(page, layer, head) + key_bytes_;
  }

 private:
  const int layers_, kv_heads_, head_dim_, value_stride_;
  const cpu::KvType type_;
  const int64_t pages_;
  int64_t key_bytes_, head_bytes_, page_bytes_;
  uint8_t* base_;
};

}  // namespace oxibonsai::program
