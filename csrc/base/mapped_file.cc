#include "base/mapped_file.h"

#include "base/check.h"

namespace oxibonsai {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  file_ = os::open_to_read(path);
  if (file_ == os::kNoFile) throw FormatError("cannot open " + path + ": " + os::error_text());
  try {
    const std::optional<os::FileState> state = os::file_state(file_);
    if (!state.has_value()) throw FormatError(path + " is not a regular file");
    if (state->size == 0) throw FormatError(path + " is empty");
    size_ = state->size;
    written_ = state->written;
    data_ = os::map_file(file_, size_);
    if (data_ == nullptr) throw FormatError("cannot map " + path + ": " + os::error_text());
    guard_.emplace(data_, size_, this);
  } catch (...) {
    if (data_ != nullptr) os::unmap_file(data_, size_);
    os::close_file(file_);
    throw;
  }
}

const MappedFile* MappedFile::find(const void* data) {
  return static_cast<const MappedFile*>(BusGuard::find(data));
}

void MappedFile::release(const uint8_t* data, int64_t bytes) const {
  os::release_file_pages(data, static_cast<size_t>(bytes));
}

void MappedFile::check_unchanged() const {
  const std::optional<os::FileState> now = os::file_state(file_);
  const bool same = now.has_value() && now->size == size_ && now->written == written_;
  if (same && !guard_->is_lost()) return;
  throw FormatError(
      path_ +
      " was changed while it was in use, or its disk failed: load it again. To replace "
      "a file that is in use, write the new one under another name and rename it (mv)");
}

MappedFile::~MappedFile() {
  guard_.reset();
  os::unmap_file(data_, size_);
  os::close_file(file_);
}

}  // namespace oxibonsai
