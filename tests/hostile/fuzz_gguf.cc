// Fuzz target of the GGUF reader: any bytes give a file that was checked whole, or a clear error.

#ifdef _WIN32
#include <filesystem>
#include <fstream>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "base/os/os.h"
#include "format/gguf.h"
#include "quant/inspect.h"

using oxibonsai::format::GgufFile;

namespace {

// A file with these bytes, in memory where the system has such files.
class InputFile {
 public:
#ifdef _WIN32
  InputFile(const uint8_t* data, size_t size)
      : path_(std::filesystem::temp_directory_path() /
              ("fuzz-" + std::to_string(oxibonsai::os::process_id()) + ".gguf")) {
    std::ofstream out(path_, std::ios::binary);
    if (!out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size)))
      std::abort();
  }
  ~InputFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.u8string(); }

 private:
  std::filesystem::path path_;
#else
  InputFile(const uint8_t* data, size_t size) : fd_(memfd_create("fuzz.gguf", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~InputFile() { close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
#endif
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const InputFile input(data, size);
  try {
    const auto file = GgufFile::open(input.path());
    for (const auto& t : file->tensors()) {
      if (!t.type.has_value()) continue;
      int64_t weights = 1;
      for (const int64_t d : t.dims) weights *= d;
      oxibonsai::quant::inspect(*t.type, file->data(t), weights);
    }
  } catch (const oxibonsai::Error&) {
  }
  return 0;
}
