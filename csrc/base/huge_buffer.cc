#include "base/huge_buffer.h"

#include <sys/mman.h>

#include <string>

#include "base/check.h"

namespace oxibonsai {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

HugeBuffer::HugeBuffer(size_t bytes) {
  if (bytes == 0) return;
  // One page more than needed, to begin on a boundary of huge pages.
  mapped_size_ = bytes + kHugePage;
  mapped_ = mmap(nullptr, mapped_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped_ == MAP_FAILED)
    throw CapacityError("the system refused " + std::to_string(bytes) + " bytes of memory");
  const auto address = reinterpret_cast<uintptr_t>(mapped_);
  data_ = reinterpret_cast<uint8_t*>((address + kHugePage - 1) / kHugePage * kHugePage);
#if defined(MADV_HUGEPAGE)
  // Advice only: without huge pages everything works, slower. Not for the last, partly used page,
  // which would count whole.
  if (bytes >= kHugePage) madvise(data_, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
}

HugeBuffer::~HugeBuffer() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_size_);
}

}  // namespace oxibonsai
