// The noise that pictures start from: hashes of float32 bytes that MLX gave on x86-64, so that
// every machine that runs this draws the same. tests/diffusion/test_noise.py compares many more.

#include "base/check.h"
#include "check.h"
#include "sampling/normals.h"

using namespace oxibonsai;

namespace {

uint64_t fnv(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  std::vector<unsigned char> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  for (const unsigned char b : bytes) hash = (hash ^ b) * 0x100000001b3u;
  return hash;
}

template <class Draw>
uint64_t drawn(Draw draw, uint64_t seed, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  draw(seed, count, values.data());
  return fnv(values);
}

}  // namespace

int main() {
  CHECK(drawn(sampling::mlx_normals, 42, 131072) == 0x32985fbcdb59ea95u,
        "seed 42, a picture of 512 x 512");
  CHECK(drawn(sampling::mlx_normals, uint64_t{1} << 32, 1001) == 0x8e75bec408973716u,
        "an odd count, a long seed");
  CHECK(drawn(sampling::torch_normals, 42, 131072) == 0x6406cc109d1a0058u, "torch's, seed 42");
  CHECK(drawn(sampling::torch_normals, 7, 100) == 0xa82864534dd3071au,
        "torch's, a count that 16 does not divide");
  bool refused = false;
  try {
    drawn(sampling::torch_normals, 0, 15);
  } catch (const RequestError&) {
    refused = true;
  }
  CHECK(refused, "fewer than 16 numbers of torch's");
  return test::finish("normals");
}
