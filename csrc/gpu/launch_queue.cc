#include "gpu/launch_queue.h"

#include <cstring>

namespace oxibonsai::gpu {
namespace {

constexpr size_t kAlignment = alignof(std::max_align_t);

// Appends bytes on a boundary that any Args may have, and says where.
size_t append(std::vector<uint8_t>* bytes, const void* data, size_t count) {
  const size_t at = (bytes->size() + kAlignment - 1) / kAlignment * kAlignment;
  bytes->resize(at + count);
  std::memcpy(bytes->data() + at, data, count);
  return at;
}

}  // namespace

void LaunchQueue::add(const Launch& l) {
  const size_t kernel = append(&bytes_, l.kernel, std::strlen(l.kernel) + 1);
  const size_t args = append(&bytes_, l.args, l.arg_bytes);
  waiting_.push_back({l, kernel, args, buffers_.size()});
  buffers_.insert(buffers_.end(), l.buffers, l.buffers + l.buffer_count);
}

void LaunchQueue::submit(Backend& backend) {
  if (waiting_.empty()) return;
  launches_.clear();
  for (const Waiting& w : waiting_) {
    Launch& l = launches_.emplace_back(w.launch);
    l.kernel = reinterpret_cast<const char*>(bytes_.data() + w.kernel);
    l.args = bytes_.data() + w.args;
    l.buffers = buffers_.data() + w.buffers;
  }
  backend.launch_all(launches_);
  if (keeps_names_)
    for (const Launch& l : launches_) names_.insert(l.kernel);
  clear();
}

void LaunchQueue::clear() {
  waiting_.clear();
  bytes_.clear();
  buffers_.clear();
}

}  // namespace oxibonsai::gpu
