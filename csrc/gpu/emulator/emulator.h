#pragma once

// Runs kernels of the dialect on the CPU: the threads of a block are fibers of the calling thread.
// Between two barriers they run in an order drawn from a seed, and shared memory begins as garbage,
// so that a missing barrier shows as other bytes; a barrier that not all threads reach, or a
// shuffle that not all lanes of a warp do, is a DeviceError. Slow, and for tests alone.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gpu/backend.h"

namespace oxibonsai::gpu::emulator {

// ---- What a host sees.

struct Kernel {
  const char* name;
  size_t arg_bytes;  // of Args
  int buffers;       // READ and WRITE parameters
  void (*run)(const void* args, uint8_t* const* buffers);
};

// Null where there is none of that name.
const Kernel* find_kernel(const std::string& name);
std::vector<std::string> kernel_names();

struct Options {
  uint64_t seed = 1;              // of the order of threads
  bool flush_subnormals = false;  // results and operands, as some GPUs do
};

// Runs all blocks, one after the other in a random order. `args` and `buffers` are the kernel's.
void launch(const Kernel& kernel, const Grid& grid, uint32_t threads, const void* args,
            uint8_t* const* buffers, const Options& options);

// ---- What a kernel sees (gpu/dialect_emulator.h).

uint32_t thread();
const Grid& block();
void barrier(int site);
uint8_t* shared_bytes(int id, size_t bytes);

template <class T>
T* shared(int id, size_t count) {
  return reinterpret_cast<T*>(shared_bytes(id, count * sizeof(T)));
}

// Words that the lanes of a warp show each other.
constexpr int kShownWords = 8;
using Shown = uint32_t[kShownWords];

// Shows `count` words to the other lanes and returns what all 32 of them show. `site` is where in
// the source: all lanes must be there.
const Shown* exchange(const uint32_t* words, int count, int site);

template <class T>
T shuffle_from(T value, uint32_t lane, int site) {
  static_assert(sizeof(T) == 4);
  uint32_t word;
  std::memcpy(&word, &value, 4);
  const Shown* all = exchange(&word, 1, site);
  if (lane < 32) std::memcpy(&value, all[lane], 4);
  return value;
}

template <class T>
T shuffle_down(T value, uint32_t by, int site) {
  return shuffle_from(value, (thread() & 31u) + by, site);
}

// mma.sync, m16n8k32 with kHalves = 2 and m16n8k16 with 1; the layout is in gpu/dialect_cuda.h.
template <int kHalves>
void multiply_tile(int32_t* c, const uint32_t* a, const uint32_t* b, int site) {
  uint32_t words[6] = {a[0], a[1]};
  for (int i = 2; i < 2 * kHalves; ++i) words[i] = a[i];
  for (int i = 0; i < kHalves; ++i) words[4 + i] = b[i];
  const Shown* all = exchange(words, 6, site);
  const uint32_t lane = thread() & 31u;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t row = lane / 4, low = i / 2;  // low: 8 rows further on
    const uint32_t column = lane % 4 * 2 + i % 2;
    for (uint32_t quad = 0; quad < 4; ++quad)
      for (uint32_t half = 0; half < kHalves; ++half)
        for (uint32_t byte = 0; byte < 32; byte += 8)
          c[i] += static_cast<int8_t>(all[4 * row + quad][low + 2 * half] >> byte) *
                  static_cast<int8_t>(all[4 * column + quad][4 + half] >> byte);
  }
}

// mma.sync.m8n8k16.
inline void multiply_small_tile(int32_t* c, uint32_t a, uint32_t b, int site) {
  const uint32_t words[2] = {a, b};
  const Shown* all = exchange(words, 2, site);
  const uint32_t lane = thread() & 31u;
  for (uint32_t i = 0; i < 2; ++i)
    for (uint32_t quad = 0; quad < 4; ++quad)
      for (uint32_t byte = 0; byte < 32; byte += 8)
        c[i] += static_cast<int8_t>(all[lane / 4 * 4 + quad][0] >> byte) *
                static_cast<int8_t>(all[(lane % 4 * 2 + i) * 4 + quad][1] >> byte);
}

bool register_kernel(const Kernel& kernel);

template <auto kFunction>
struct Registered;
template <class Args, class... T, void (*kFunction)(const Args&, T*...)>
struct Registered<kFunction> {
  template <size_t... i>
  static void call(const void* args, uint8_t* const* buffers, std::index_sequence<i...>) {
    kFunction(*static_cast<const Args*>(args), reinterpret_cast<T*>(buffers[i])...);
  }
  static void run(const void* args, uint8_t* const* buffers) {
    call(args, buffers, std::index_sequence_for<T...>());
  }
  static Kernel describe(const char* name) {
    return {name, sizeof(Args), static_cast<int>(sizeof...(T)), &run};
  }
};

template <auto kFunction>
bool add(const char* name) {
  return register_kernel(Registered<kFunction>::describe(name));
}

}  // namespace oxibonsai::gpu::emulator
