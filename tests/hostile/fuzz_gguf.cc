// Fuzz target of the GGUF reader: any bytes give a file that was checked whole, or a clear error.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "format/gguf.h"
#include "quant/inspect.h"

using oxibonsai::format::GgufFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("fuzz.gguf", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    const auto file = GgufFile::open("/proc/self/fd/" + std::to_string(fd));
    for (const auto& t : file->tensors()) {
      if (!t.type.has_value()) continue;
      int64_t weights = 1;
      for (const int64_t d : t.dims) weights *= d;
      oxibonsai::quant::inspect(*t.type, file->data(t), weights);
    }
  } catch (const oxibonsai::Error&) {
  }
  close(fd);
  return 0;
}
