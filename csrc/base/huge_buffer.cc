#include "base/huge_buffer.h"

#include <string>

#include "base/check.h"
#include "base/os/os.h"

namespace oxibonsai {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

HugeBuffer::HugeBuffer(size_t bytes) {
  if (bytes == 0) return;
  // One page more than needed, to begin on a boundary of huge pages.
  mapped_size_ = bytes + kHugePage;
  mapped_ = os::allocate_pages(mapped_size_);
  if (mapped_ == nullptr)
    throw CapacityError("the system refused " + std::to_string(bytes) + " bytes of memory");
  const auto address = reinterpret_cast<uintptr_t>(mapped_);
  data_ = reinterpret_cast<uint8_t*>((address + kHugePage - 1) / kHugePage * kHugePage);
  // Advice only: without huge pages everything works, slower. Not for the last, partly used page,
  // which would count whole.
  if (bytes >= kHugePage) os::prefer_huge_pages(data_, bytes / kHugePage * kHugePage);
}

HugeBuffer::~HugeBuffer() {
  if (mapped_ != nullptr) os::free_pages(mapped_, mapped_size_);
}

}  // namespace oxibonsai
