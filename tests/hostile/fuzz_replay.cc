// Runs a fuzz target where there is no libFuzzer: fuzz_NAME COUNT SEED FILE... gives it each file,
// and COUNT mutations of each. A finding ends the program, as under libFuzzer.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

void edit(std::mt19937_64& random, Bytes* bytes) {
  if (bytes->empty()) return;
  const size_t at = random() % bytes->size();
  switch (random() % 5) {
    case 0:
      (*bytes)[at] = static_cast<uint8_t>(random());
      break;
    case 1:
      (*bytes)[at] ^= static_cast<uint8_t>(1u << (random() % 8));
      break;
    case 2:
      (*bytes)[at] = random() % 2 == 0 ? 0xFF : 0x7F;
      break;
    case 3:
      bytes->resize(at + 1);
      break;
    default:
      bytes->insert(bytes->begin() + static_cast<long>(at), 8, 0xFF);
      break;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s COUNT SEED FILE...\n", argv[0]);
    return 2;
  }
  const long count = std::atol(argv[1]);
  std::mt19937_64 random(static_cast<uint64_t>(std::atoll(argv[2])));
  long tried = 0;
  for (int f = 3; f < argc; ++f) {
    std::ifstream in(argv[f], std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "cannot read %s\n", argv[f]);
      return 2;
    }
    const Bytes original{std::istreambuf_iterator<char>(in), {}};
    LLVMFuzzerTestOneInput(original.data(), original.size());
    for (long i = 0; i < count; ++i, ++tried) {
      Bytes bytes = original;
      for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) edit(random, &bytes);
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
  }
  std::printf("%d files and %ld mutations of them\n", argc - 3, tried);
  return 0;
}
