#include "base/bus_guard.h"

#include <mutex>

#include "base/os/os.h"

namespace oxibonsai {

// Never freed, so that the handler may walk the list while others change it; used again instead.
struct BusGuard::Range {
  std::atomic<uintptr_t> first{0}, last{0};  // last is 0: free
  std::atomic<bool> lost{false};
  std::atomic<const void*> owner{nullptr};
  Range* next = nullptr;
};

namespace {

std::mutex mutex;  // of the list and of the handler's installation
std::atomic<BusGuard::Range*> ranges{nullptr};

BusGuard::Range* range_of(uintptr_t address) {
  for (BusGuard::Range* r = ranges.load(); r != nullptr; r = r->next) {
    // `first` belongs to `last` only where that is the same before and afterwards.
    const uintptr_t last = r->last.load();
    if (address < last && address >= r->first.load() && r->last.load() == last) return r;
  }
  return nullptr;
}

// Zeros from this page to the end: whatever the file holds there now is not what was mapped.
bool repair(uintptr_t address) {
  BusGuard::Range* const range = range_of(address);
  if (range == nullptr) return false;
  range->lost.store(true);
  return os::replace_by_zeros(address, range->last.load());
}

BusGuard::Range* take(uintptr_t first, uintptr_t last, const void* owner) {
  const std::lock_guard<std::mutex> lock(mutex);
  // Also where another handler, such as faulthandler's, has come since.
  os::repair_failed_reads(&repair);
  BusGuard::Range* range = ranges.load();
  while (range != nullptr && range->last.load() != 0) range = range->next;
  if (range == nullptr) {
    range = new BusGuard::Range;
    range->next = ranges.load();
    ranges.store(range);
  }
  range->lost.store(false);
  range->owner.store(owner);
  range->first.store(first);
  range->last.store(last);
  return range;
}

}  // namespace

BusGuard::BusGuard(const void* data, size_t bytes, const void* owner)
    : range_(take(reinterpret_cast<uintptr_t>(data), reinterpret_cast<uintptr_t>(data) + bytes,
                  owner)) {}

const void* BusGuard::find(const void* data) {
  const Range* range = range_of(reinterpret_cast<uintptr_t>(data));
  return range == nullptr ? nullptr : range->owner.load();
}

BusGuard::~BusGuard() { range_->last.store(0); }

bool BusGuard::is_lost() const { return range_->lost.load(); }

}  // namespace oxibonsai
