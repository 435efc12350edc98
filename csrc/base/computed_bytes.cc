#include "base/computed_bytes.h"

#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/os/os.h"

namespace oxibonsai {
namespace {

// All that there are, by the address that each begins at.
struct Registry {
  std::mutex mutex;
  std::map<const uint8_t*, std::weak_ptr<const ComputedBytes>> all;
};

Registry& registry() {
  static auto* const found = new Registry;  // is used until the process ends
  return *found;
}

}  // namespace

ComputedBytes::ComputedBytes(int64_t size, Write write) : size_(size), write_(std::move(write)) {
  data_ = os::reserve_pages(static_cast<size_t>(size));
  if (data_ == nullptr)
    throw RequestError("there are no addresses for " + std::to_string(size) + " bytes of a tensor");
}

std::shared_ptr<const ComputedBytes> ComputedBytes::make(int64_t size, Write write) {
  std::shared_ptr<const ComputedBytes> made(new ComputedBytes(size, std::move(write)));
  const std::lock_guard lock(registry().mutex);
  registry().all[made->data_] = made;
  return made;
}

ComputedBytes::~ComputedBytes() {
  {
    const std::lock_guard lock(registry().mutex);
    registry().all.erase(data_);
  }
  os::free_pages(data_, static_cast<size_t>(size_));
}

std::shared_ptr<const void> ComputedBytes::hold(const void* data) {
  const auto* const byte = static_cast<const uint8_t*>(data);
  std::shared_ptr<const ComputedBytes> found;
  {
    const std::lock_guard lock(registry().mutex);
    const auto after = registry().all.upper_bound(byte);
    if (after != registry().all.begin()) found = std::prev(after)->second.lock();
  }
  if (found == nullptr || byte >= found->data_ + found->size_) return nullptr;
  return found->hold_these();
}

std::shared_ptr<const void> ComputedBytes::hold_these() const {
  std::unique_lock lock(mutex_);
  written_.wait(lock, [this] { return !writing_; });
  if (holders_ == 0) {
    writing_ = true;
    lock.unlock();
    try {
      if (!os::commit(data_, static_cast<size_t>(size_)))
        throw CapacityError("the system refused " + std::to_string(size_) + " bytes for a tensor");
      write_(data_);
    } catch (...) {
      clear();
      lock.lock();
      writing_ = false;
      written_.notify_all();
      throw;
    }
    lock.lock();
    writing_ = false;
    written_.notify_all();
  }
  ++holders_;
  return {data_, [self = shared_from_this()](const void*) { self->let_go(); }};
}

void ComputedBytes::let_go() const {
  const std::lock_guard lock(mutex_);
  if (--holders_ == 0) clear();
}

void ComputedBytes::clear() const { os::decommit(data_, static_cast<size_t>(size_)); }

}  // namespace oxibonsai
