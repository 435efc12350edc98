// The emulator catches what a GPU would show now and then: a missing barrier, a wrong lane, a
// barrier or a shuffle that not all reach. And the comparison of bytes catches an fma where none
// belongs. Kernels are mutated by macros, within a namespace each.

#include "gpu/dialect.h"

#include "check.h"
#include "gpu/emulator/emulator_backend.h"

#undef KERNEL
#define KERNEL(name, Args, ...) \
  [[maybe_unused]] static void name([[maybe_unused]] const Args& args, __VA_ARGS__)

namespace real {
#include "gpu/kernels/args.h"

#include "gpu/kernels/functions.h"

#include "gpu/kernels/rounding.h"

#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/norm.h"
}  // namespace real

namespace without_barrier {
#include "gpu/kernels/args.h"

#include "gpu/kernels/functions.h"

#include "gpu/kernels/rounding.h"

#undef BARRIER
#define BARRIER() (void)0
#include "gpu/kernels/norm.h"
#undef BARRIER
#define BARRIER() oxibonsai::gpu::emulator::barrier(__LINE__)
}  // namespace without_barrier

namespace wrong_lane {
#include "gpu/kernels/args.h"

#include "gpu/kernels/functions.h"

#include "gpu/kernels/rounding.h"

#undef shuffle_down
#define shuffle_down(value, by) oxibonsai::gpu::emulator::shuffle_down(value, (by) + 1, __LINE__)
#include "gpu/kernels/norm.h"
#undef shuffle_down
#define shuffle_down(value, by) oxibonsai::gpu::emulator::shuffle_down(value, by, __LINE__)
}  // namespace wrong_lane

namespace with_fma {
#include "gpu/kernels/args.h"
#define gated_of exact_gated_of
#include "gpu/kernels/functions.h"
#undef gated_of
// sigmoid * (up + 1) as sigmoid * up + sigmoid, in one rounding.
INLINE float gated_of(uint32_t function, float gate, float up) {
  if (function != kSwigluOai) return exact_gated_of(function, gate, up);
  const float below = smaller(gate, 7.0f);
  const float sigmoid = times_sigmoid(below, below * 1.702f);
  return fused(sigmoid, larger(smaller(up, 7.0f), -7.0f), sigmoid);
}
#include "gpu/kernels/rounding.h"

#include "gpu/kernels/elementwise.h"
}  // namespace with_fma

namespace {

using namespace oxibonsai::gpu;

struct NoArgs {
  uint32_t unused;
};

void half_of_a_barrier(const NoArgs&, float* y) {
  if (THREAD < 32) BARRIER();
  y[THREAD] = 1.0f;
}

void half_of_a_shuffle(const NoArgs&, float* y) {
  float v = 1.0f;
  if (THREAD % 2 == 0) v = shuffle_down(v, 1);
  y[THREAD] = v;
}

// Two branches, each with a shuffle of its own.
void shuffles_apart(const NoArgs&, float* y) {
  float v = 1.0f;
  if (THREAD % 2 == 0) {
    v = shuffle_down(v, 1);
  } else {
    v = shuffle_down(v, 2);
  }
  y[THREAD] = v;
}

void too_much_memory(const NoArgs&, float* y) {
  SHARED(float, much, 8193);
  much[THREAD] = 1.0f;
  y[THREAD] = much[THREAD];
}

template <auto kFunction>
emulator::Kernel kernel() {
  return emulator::Registered<kFunction>::describe("mutant");
}

template <auto kFunction>
bool is_refused() {
  std::vector<float> y(64);
  uint8_t* buffers[] = {reinterpret_cast<uint8_t*>(y.data())};
  const NoArgs args{};
  try {
    emulator::launch(kernel<kFunction>(), {}, 64, &args, buffers, {});
  } catch (const oxibonsai::DeviceError&) {
    return true;
  }
  return false;
}

std::vector<float> rms_norm(const emulator::Kernel& kernel, uint64_t seed) {
  constexpr uint32_t kWidth = 300, kRows = 3;
  std::mt19937 random(4);
  auto x = test::normal(random, kWidth * kRows), w = test::normal(random, kWidth);
  std::vector<float> y(x.size());
  real::NormArgs args{};
  args.width = kWidth;
  args.own = 1;
  args.eps = 1e-6f;
  uint8_t* buffers[] = {reinterpret_cast<uint8_t*>(x.data()),
                        reinterpret_cast<uint8_t*>(w.data()),
                        reinterpret_cast<uint8_t*>(y.data()),
                        nullptr,
                        nullptr,
                        nullptr};
  emulator::launch(kernel, {kRows}, 256, &args, buffers, {seed, false});
  return y;
}

std::vector<float> gated(const emulator::Kernel& kernel) {
  std::mt19937 random(5);
  auto gate = test::normal(random, 1000), up = test::normal(random, 1000);
  std::vector<float> y(gate.size());
  real::FlatArgs args{};
  args.count = y.size();
  args.function = real::kSwigluOai;
  uint8_t* buffers[] = {reinterpret_cast<uint8_t*>(gate.data()),
                        reinterpret_cast<uint8_t*>(up.data()),
                        reinterpret_cast<uint8_t*>(y.data()),
                        nullptr,
                        nullptr,
                        nullptr};
  emulator::launch(kernel, {4}, 256, &args, buffers, {});
  return y;
}

void check_mutants() {
  const auto truth = rms_norm(kernel<&real::rms_norm>(), 1);
  int without_barrier = 0, wrong_lane = 0;
  constexpr int kSeeds = 8;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CHECK(test::same_bytes(truth, rms_norm(kernel<&real::rms_norm>(), seed)), "any order");
    without_barrier +=
        !test::same_bytes(truth, rms_norm(kernel<&without_barrier::rms_norm>(), seed));
    wrong_lane += !test::same_bytes(truth, rms_norm(kernel<&wrong_lane::rms_norm>(), seed));
  }
  CHECK(without_barrier == kSeeds, "caught " + std::to_string(without_barrier));
  CHECK(wrong_lane == kSeeds, "caught " + std::to_string(wrong_lane));
  CHECK(!test::same_bytes(gated(kernel<&real::gated>()), gated(kernel<&with_fma::gated>())), "fma");
}

void check_refusals() {
  CHECK(is_refused<&half_of_a_barrier>(), "a barrier that half of the threads reach");
  CHECK(is_refused<&half_of_a_shuffle>(), "a shuffle that half of the lanes reach");
  CHECK(is_refused<&shuffles_apart>(), "two shuffles at once");
  CHECK(is_refused<&too_much_memory>(), "more shared memory than Metal has");
}

void check_backend() {
  emulator::EmulatorBackend backend({}, {Int8Mma::k16x8x32}, 1000);
  const BufferPtr buffer = backend.allocate(600);
  CHECK(backend.memory().free == 400, "free memory");
  bool refused = false;
  try {
    backend.allocate(401);
  } catch (const oxibonsai::CapacityError&) {
    refused = true;
  }
  CHECK(refused, "no more memory than there is");
  uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8}, found[8];
  backend.upload(bytes, {buffer.get(), 10}, 8);
  backend.copy({buffer.get(), 10}, {buffer.get(), 100}, 8);
  backend.fill({buffer.get(), 102}, 9, 2);
  backend.download({buffer.get(), 100}, found, 8);
  CHECK(found[0] == 1 && found[2] == 9 && found[3] == 9 && found[7] == 8, "memory");
  refused = false;
  try {
    backend.upload(bytes, {buffer.get(), 593}, 8);
  } catch (const oxibonsai::DeviceError&) {
    refused = true;
  }
  CHECK(refused, "memory outside of a buffer");
}

}  // namespace

int main() {
  check_mutants();
  check_refusals();
  check_backend();
  return test::finish("gpu emulator");
}
