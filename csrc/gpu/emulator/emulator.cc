#include "gpu/emulator/emulator.h"

#include <algorithm>
#include <map>
#include <memory>

#include "gpu/emulator/fiber.h"
#include "gpu/emulator/flush_subnormals.h"

namespace oxibonsai::gpu::emulator {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr uint32_t kWarp = 32;
constexpr size_t kSharedBytes = 32 << 10;  // of a block, at most: what Metal has
constexpr uint8_t kGarbage = 0xEE;         // a negative number as float and as int

std::map<std::string, Kernel>& kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}

enum class Waits : uint8_t { kNothing, kBarrier, kShuffle, kEnd };

struct Fiber {
  std::unique_ptr<uint8_t[]> stack{new uint8_t[kStackBytes]};
  void* place = nullptr;  // where it goes on
  uint32_t thread = 0;
  Waits waits = Waits::kNothing;
  int site = 0;            // of what it waits for
  uint32_t exchanges = 0;  // so far; odd and even ones have slots of their own
};

// The block that a thread of the CPU runs.
struct Block {
  std::vector<Fiber> fibers;
  Fiber* running = nullptr;
  void* scheduler = nullptr;
  Grid at;
  std::map<int, std::vector<uint8_t>> shared;
  size_t shared_used = 0;
  std::vector<Shown> shown[2];  // [threads]
  const Kernel* kernel = nullptr;
  const void* args = nullptr;
  uint8_t* const* buffers = nullptr;
  uint64_t random = 1;

  uint32_t draw(size_t below) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return static_cast<uint32_t>((random >> 32) % below);
  }
};

Block& current() {
  static thread_local Block b;
  return b;
}

void wait(Waits what, int site) {
  Block& b = current();
  b.running->waits = what;
  b.running->site = site;
  switch_fiber(&b.running->place, b.scheduler);
}

void enter() {
  const Block& b = current();
  b.kernel->run(b.args, b.buffers);
  wait(Waits::kEnd, 0);
}

[[noreturn]] void fail(const Block& b, const char* what, int site) {
  throw DeviceError(std::string("kernel ") + b.kernel->name + ": " + what + " in line " +
                    std::to_string(site));
}

// Whether a warp goes on after a shuffle.
bool warp_goes_on(const Block& b, uint32_t first) {
  uint32_t shuffling = 0;
  const Fiber* one = nullptr;
  for (uint32_t t = first; t < first + kWarp; ++t) {
    const Fiber& f = b.fibers[t];
    if (f.waits != Waits::kShuffle) continue;
    if (one != nullptr && one->site != f.site) fail(b, "a shuffle without all lanes", f.site);
    one = &f;
    ++shuffling;
  }
  if (shuffling != 0 && shuffling != kWarp) fail(b, "a shuffle without all lanes", one->site);
  return shuffling != 0;
}

// Who runs next: warps behind a shuffle, or else all threads behind a barrier; nobody at the end.
std::vector<uint32_t> next_ready(const Block& b, uint32_t threads) {
  std::vector<uint32_t> ready;
  for (uint32_t first = 0; first < threads; first += kWarp)
    if (warp_goes_on(b, first))
      for (uint32_t t = first; t < first + kWarp; ++t) ready.push_back(t);
  if (!ready.empty()) return ready;
  const Fiber& one = b.fibers[0];
  for (uint32_t t = 0; t < threads; ++t) {
    const Fiber& f = b.fibers[t];
    if (f.waits != one.waits || f.site != one.site)
      fail(b, "a barrier without all threads", std::max(f.site, one.site));
    if (f.waits == Waits::kBarrier) ready.push_back(t);
  }
  return ready;
}

void run_block(uint32_t threads) {
  Block& b = current();
  for (auto& [id, bytes] : b.shared) std::fill(bytes.begin(), bytes.end(), kGarbage);
  std::vector<uint32_t> ready;
  for (uint32_t t = 0; t < threads; ++t) {
    Fiber& f = b.fibers[t];
    f.thread = t;
    f.exchanges = 0;
    f.place = make_fiber(f.stack.get() + kStackBytes, &enter);
    ready.push_back(t);
  }
  while (!ready.empty()) {
    for (size_t i = ready.size(); i > 1; --i) std::swap(ready[i - 1], ready[b.draw(i)]);
    for (const uint32_t t : ready) {
      b.running = &b.fibers[t];
      switch_fiber(&b.scheduler, b.running->place);
    }
    ready = next_ready(b, threads);
  }
  if (b.shared_used > kSharedBytes)
    throw DeviceError(std::string("kernel ") + b.kernel->name + ": " +
                      std::to_string(b.shared_used) + " bytes of shared memory");
}

}  // namespace

bool register_kernel(const Kernel& kernel) { return kernels().emplace(kernel.name, kernel).second; }

const Kernel* find_kernel(const std::string& name) {
  const auto found = kernels().find(name);
  return found == kernels().end() ? nullptr : &found->second;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : kernels()) names.push_back(name);
  return names;
}

uint32_t thread() { return current().running->thread; }
const Grid& block() { return current().at; }
void barrier(int site) { wait(Waits::kBarrier, site); }

uint8_t* shared_bytes(int id, size_t bytes) {
  Block& b = current();
  std::vector<uint8_t>& memory = b.shared[id];
  if (memory.empty()) {
    memory.assign(bytes, kGarbage);
    b.shared_used += bytes;
  }
  return memory.data();
}

const Shown* exchange(const uint32_t* words, int count, int site) {
  Block& b = current();
  Fiber& f = *b.running;
  std::vector<Shown>& shown = b.shown[f.exchanges++ % 2];
  std::memcpy(shown[f.thread], words, static_cast<size_t>(count) * sizeof *words);
  wait(Waits::kShuffle, site);
  return &shown[f.thread / kWarp * kWarp];
}

void launch(const Kernel& kernel, const Grid& grid, uint32_t threads, const void* args,
            uint8_t* const* buffers, const Options& options) {
  if (threads == 0 || threads % kWarp != 0 || threads > 1024)
    throw DeviceError(std::string("kernel ") + kernel.name + ": a block of " +
                      std::to_string(threads) + " threads");
  const FlushSubnormals flush(options.flush_subnormals);
  Block& b = current();
  if (b.fibers.size() < threads) b.fibers.resize(threads);
  for (std::vector<Shown>& shown : b.shown) shown = std::vector<Shown>(threads);
  b.shared.clear();
  b.shared_used = 0;
  b.kernel = &kernel;
  b.args = args;
  b.buffers = buffers;
  b.random = options.seed * 0x9E3779B97F4A7C15u + 1;
  std::vector<Grid> blocks;
  for (uint32_t z = 0; z < grid.z; ++z)
    for (uint32_t y = 0; y < grid.y; ++y)
      for (uint32_t x = 0; x < grid.x; ++x) blocks.push_back({x, y, z});
  for (size_t i = blocks.size(); i > 0; --i) {
    std::swap(blocks[i - 1], blocks[b.draw(i)]);
    b.at = blocks[i - 1];
    run_block(threads);
  }
}

}  // namespace oxibonsai::gpu::emulator
