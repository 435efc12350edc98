#include "cuda/library.h"

#include <dlfcn.h>

#include "base/check.h"

namespace oxibonsai::cuda {
namespace {

void* open(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* reason = dlerror();
  throw UnsupportedError(
      path + " cannot be opened: " + (reason == nullptr ? "no reason is given" : reason));
}

}  // namespace

Library::Library(const std::string& path) : path_(path), handle_(open(path)) {}

void* Library::symbol(const char* name, const char* advice) const {
  void* found = dlsym(handle_, name);
  if (found == nullptr) throw UnsupportedError(path_ + " has no " + name + "; " + advice);
  return found;
}

void* Library::optional_symbol(const char* name) const { return dlsym(handle_, name); }

}  // namespace oxibonsai::cuda
