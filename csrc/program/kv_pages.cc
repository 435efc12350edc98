#include "program/kv_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/check.h"
#include "cpu/kv_layout.h"

namespace oxibonsai::program {

int64_t kv_page_bytes(const KvShape& s) {
  constexpr int kMost = 1 << 16;
  if (s.layers < 1 || s.layers > kMost || s.kv_heads < 1 || s.kv_heads > kMost || s.head_dim < 1 ||
      s.head_dim > 4096)
    throw RequestError("a KV cache needs 1 to 65536 layers and heads, and head_dim 1 to 4096");
  const cpu::KvLayout layout = cpu::kv_layout(s.type, s.head_dim);
  return (layout.key_bytes + layout.value_bytes) * s.kv_heads * s.layers;
}

KvPages::KvPages(const KvShape& shape, int64_t pages)
    : shape_(shape),
      layout_(cpu::kv_layout(shape.type, shape.head_dim)),
      page_bytes_(kv_page_bytes(shape)),
      pages_(pages) {
  if (pages < 1) throw RequestError("a KV cache needs at least one page");
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
  const auto unit = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(page(index));
  const uintptr_t first = (begin + unit - 1) / unit * unit;
  const uintptr_t last = (begin + static_cast<uintptr_t>(page_bytes_)) / unit * unit;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace oxibonsai::program
