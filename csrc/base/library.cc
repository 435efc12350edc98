#include "base/library.h"

#include "base/check.h"
#include "base/os/os.h"

namespace oxibonsai {
namespace {

void* open(const std::string& path) {
  std::string reason;
  void* const handle = os::open_library(path, &reason);
  if (handle == nullptr) throw UnsupportedError(path + " cannot be opened: " + reason);
  return handle;
}

}  // namespace

Library::Library(const std::string& path) : path_(path), handle_(open(path)) {}

void* Library::symbol(const char* name, const char* advice) const {
  void* found = os::find_symbol(handle_, name);
  if (found == nullptr) throw UnsupportedError(path_ + " has no " + name + "; " + advice);
  return found;
}

void* Library::optional_symbol(const char* name) const { return os::find_symbol(handle_, name); }

}  // namespace oxibonsai
