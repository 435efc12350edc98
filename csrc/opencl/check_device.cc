#include "opencl/check_device.h"

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "gpu/kernel_args.h"

namespace oxibonsai::opencl {
namespace {

constexpr uint32_t kThreads = 256, kBlocks = 16, kNumbers = kThreads * kBlocks;

float float_of(uint32_t bits) {
  float v = 0.0f;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

// Numbers of either sign within 2^-40 .. 2^41, with any bits behind the point. Of every fourth
// triple the last is near minus the product of the others, where what an fma keeps shows.
std::vector<float> numbers() {
  std::vector<float> all(3 * kNumbers);
  uint64_t state = 1;
  for (size_t i = 0; i < all.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<uint32_t>(state >> 32);
    all[i] = float_of((bits & 0x807FFFFFu) | (127 - 40 + bits / 7 % 81) << 23);
    if (i % 12 == 11) all[i] = -(all[i - 2] * all[i - 1]);
  }
  return all;
}

template <class T>
std::vector<T> fetch(gpu::Backend& backend, const gpu::BufferPtr& from) {
  std::vector<T> values(static_cast<size_t>(from->bytes()) / sizeof(T));
  backend.download({from.get(), 0}, values.data(), from->bytes());
  return values;
}

void need(bool right, const char* what) {
  if (!right) throw UnsupportedError(std::string("the driver does not keep ") + what);
}

void check_lanes(const std::vector<uint32_t>& lanes) {
  for (uint32_t i = 0; i < kThreads; ++i) {
    const uint32_t* own = &lanes[4 * size_t{i}];
    if (own[0] != 32)
      throw UnsupportedError("the driver runs subgroups of " + std::to_string(own[0]) +
                             " where 32 are required");
    need(own[1] == i, "the order of a subgroup's lanes");
    need(i % 32 + 5 > 31 || own[2] == (i + 5) * 3, "sub_group_shuffle_down");
    need(own[3] == (i / 32 * 32 + 7) * 3, "sub_group_shuffle");
  }
}

void check_results(const std::vector<float>& x, const std::vector<float>& results) {
  for (size_t i = 0; i < kNumbers; ++i) {
    const float a = x[3 * i], b = x[3 * i + 1], c = x[3 * i + 2];
    const float* own = &results[4 * i];
    const float product = a * b;
    need(own[0] == std::fma(a, b, c), "the rounding of fma");
    need(own[1] == product + c, "products and sums apart");
    need(own[2] == a / b, "the arithmetic of quotients");
    need(own[3] == std::sqrt(std::fabs(a)), "the arithmetic of square roots");
  }
}

}  // namespace

void check_device(gpu::Backend& backend) {
  const std::vector<float> x = numbers();
  const auto bytes = static_cast<int64_t>(x.size() * sizeof(float));
  const gpu::BufferPtr in = backend.allocate(bytes);
  const gpu::BufferPtr results = backend.allocate(4 * sizeof(float) * kNumbers);
  const gpu::BufferPtr lanes = backend.allocate(4 * sizeof(uint32_t) * kThreads);
  backend.upload(x.data(), {in.get(), 0}, bytes);
  const gpu::args::FlatArgs args{};
  const std::array<gpu::Address, 3> buffers{{{in.get(), 0}, {results.get(), 0}, {lanes.get(), 0}}};
  backend.launch({"probe", {kBlocks}, kThreads, &args, sizeof args, buffers.data(), 3});
  check_lanes(fetch<uint32_t>(backend, lanes));
  check_results(x, fetch<float>(backend, results));
}

}  // namespace oxibonsai::opencl
