#include "program/kv_pages.h"

#include <sys/mman.h>

#include <string>

#include "base/check.h"

namespace oxibonsai::program {

KvPages::KvPages(int layers, int kv_heads, int head_dim, cpu::KvType type, int64_t pages)
    : layers_(layers),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      value_stride_((head_dim + 15) / 16 * 16),
      type_(type),
      pages_(pages) {
  if (layers < 1 || kv_heads < 1 || head_dim < 1 || head_dim > 4096 || pages < 1)
    throw RequestError("a KV cache needs at least one layer, head and page, and head_dim <= 4096");
  const int64_t element = type == cpu::KvType::kF32 ? 4 : 2;
  key_bytes_ = element * cpu::kPageSlots * head_dim_;
  head_bytes_ = key_bytes_ + element * cpu::kPageSlots * value_stride_;
  page_bytes_ = head_bytes_ * kv_heads_ * layers_;
  if (pages > (int64_t{1} << 46) / page_bytes_)
    throw CapacityError("a KV cache of " + std::to_string(pages) + " pages of " +
                        std::to_string(page_bytes_) + " bytes is past any address space");
  void* memory = mmap(nullptr, static_cast<size_t>(pages * page_bytes_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw CapacityError("the system refused " + std::to_string(pages * page_bytes_) +
                        " bytes for the KV cache: choose a smaller context");
  base_ = static_cast<uint8_t*>(memory);
#if defined(MADV_HUGEPAGE)
  madvise(memory, static_cast<size_t>(pages * page_bytes_), MADV_HUGEPAGE);  // advice only
#endif
}

KvPages::~KvPages() { munmap(base_, static_cast<size_t>(pages_ * page_bytes_)); }

}  // namespace oxibonsai::program
