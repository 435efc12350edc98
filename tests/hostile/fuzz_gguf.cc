// Fuzz target of the GGUF reader: any bytes give a file that was checked whole, or a clear error.
// Built with clang it is a libFuzzer target; elsewhere (OXIBONSAI_REPLAY) a program that mutates
// the files named on its command line: fuzz_gguf COUNT SEED FILE...

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "format/gguf.h"
#include "quant/inspect.h"

namespace {

using oxibonsai::format::GgufFile;

std::string scratch_path() { return "fuzz-" + std::to_string(getpid()) + ".gguf"; }

// Opens the bytes as a file and reads every tensor of an accepted one.
bool accepted(const uint8_t* data, size_t size) {
  const std::string path = scratch_path();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  bool opened = false;
  try {
    const auto file = GgufFile::open(path);
    for (const auto& t : file->tensors()) {
      if (!t.type.has_value()) continue;
      int64_t weights = 1;
      for (const int64_t d : t.dims) weights *= d;
      oxibonsai::quant::inspect(*t.type, file->data(t), weights);
    }
    opened = true;
  } catch (const oxibonsai::Error&) {
  }
  std::remove(path.c_str());
  return opened;
}

}  // namespace

#if !defined(OXIBONSAI_REPLAY)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  accepted(data, size);
  return 0;
}
#else
int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: fuzz_gguf COUNT SEED FILE...\n");
    return 2;
  }
  const long count = std::atol(argv[1]);
  std::mt19937_64 random(static_cast<uint64_t>(std::atoll(argv[2])));
  long opened = 0, tried = 0;
  for (int f = 3; f < argc; ++f) {
    std::ifstream in(argv[f], std::ios::binary);
    const std::vector<uint8_t> original{std::istreambuf_iterator<char>(in), {}};
    if (original.empty() || !accepted(original.data(), original.size())) {
      std::fprintf(stderr, "%s is no valid start\n", argv[f]);
      return 1;
    }
    for (long i = 0; i < count; ++i, ++tried) {
      std::vector<uint8_t> bytes = original;
      for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
        const size_t at = random() % bytes.size();
        switch (random() % 5) {
          case 0:
            bytes[at] = static_cast<uint8_t>(random());
            break;
          case 1:
            bytes[at] ^= static_cast<uint8_t>(1u << (random() % 8));
            break;
          case 2:
            bytes[at] = random() % 2 == 0 ? 0xFF : 0x7F;
            break;
          case 3:
            bytes.resize(at + 1);
            break;
          default:
            bytes.insert(bytes.begin() + static_cast<long>(at), 8, 0xFF);
            break;
        }
      }
      opened += accepted(bytes.data(), bytes.size()) ? 1 : 0;
    }
  }
  std::printf("%ld files, %ld of them valid\n", tried, opened);
  return 0;
}
#endif
