#include "base/bus_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

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
// The handler that was there first: one that came later may itself hand back to ours.
struct sigaction previous;
bool installed = false;
uintptr_t page_bytes;

BusGuard::Range* range_of(uintptr_t address) {
  for (BusGuard::Range* r = ranges.load(); r != nullptr; r = r->next) {
    // `first` belongs to `last` only where that is the same before and afterwards.
    const uintptr_t last = r->last.load();
    if (address < last && address >= r->first.load() && r->last.load() == last) return r;
  }
  return nullptr;
}

// Zeros from this page to the end: whatever the file holds there now is not what was mapped.
bool replace(BusGuard::Range* range, uintptr_t address) {
  const uintptr_t page = address / page_bytes * page_bytes;
  range->lost.store(true);
  return mmap(reinterpret_cast<void*>(page), range->last.load() - page, PROT_READ,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

// Runs in the thread that has read; nothing but atomics and system calls is allowed here.
void on_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  BusGuard::Range* range = info->si_code > 0 ? range_of(address) : nullptr;
  const bool replaced = range != nullptr && replace(range, address);
  errno = error;
  if (replaced) return;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  } else {
    signal(number, SIG_DFL);
    if (info->si_code <= 0) raise(number);  // sent; a read is done again, and ends the process
  }
}

// Also where another handler, such as faulthandler's, has come since: this one comes first again.
void install() {
  struct sigaction now;
  if (sigaction(SIGBUS, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &on_bus_error) return;
  if (!installed) previous = now;
  installed = true;
  page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction own = {};
  own.sa_sigaction = &on_bus_error;
  own.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&own.sa_mask);
  sigaction(SIGBUS, &own, nullptr);
}

BusGuard::Range* take(uintptr_t first, uintptr_t last, const void* owner) {
  const std::lock_guard<std::mutex> lock(mutex);
  install();
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
