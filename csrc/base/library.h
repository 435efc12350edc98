#pragma once

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace oxibonsai {

// A shared library that stays open until the process ends: what it registered may be called later.
class Library {
 public:
  // UnsupportedError in the loader's words where it can't be opened.
  explicit Library(const std::string& path);

  // Fills in a function pointer; UnsupportedError with `advice` where the library lacks the name.
  template <class Function>
  void find(Function* function, const char* name, const char* advice) const {
    *function = reinterpret_cast<Function>(symbol(name, advice));
  }
  // The same; false, and a null pointer, where the library lacks the name.
  template <class Function>
  bool find_optional(Function* function, const char* name) const {
    *function = reinterpret_cast<Function>(optional_symbol(name));
    return *function != nullptr;
  }

 private:
  void* symbol(const char* name, const char* advice) const;
  void* optional_symbol(const char* name) const;

  const std::string path_;
  void* const handle_;
};

// A driver's calls, from the library that an environment variable names, or from its usual one.
// Each library is opened once, and never closed: drivers do not survive it.
template <class Driver>
const Driver& kept_driver(const char* variable, const char* usual,
                          Driver (*open)(const std::string& library)) {
  static std::mutex mutex;
  static std::map<std::string, Driver> drivers;
  const std::lock_guard<std::mutex> lock(mutex);
  const char* const named = std::getenv(variable);
  const std::string name = named == nullptr || *named == '\0' ? usual : named;
  const auto found = drivers.find(name);
  return found != drivers.end() ? found->second : drivers.emplace(name, open(name)).first->second;
}

}  // namespace oxibonsai
