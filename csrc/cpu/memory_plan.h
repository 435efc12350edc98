#pragma once

#include <cstdint>
#include <vector>

namespace oxibonsai::cpu {

// Stages of a step, both included, in which something must keep what it holds.
struct Lifetime {
  int first, last;
};

// Where each thing begins in a block of memory, in bytes from its begin on a cache line, and the
// size of the block.
struct MemoryPlan {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};

// Things whose lifetimes meet get memory of their own; others share it, whatever their sizes. The
// largest first, each takes the lowest gap with room. A step of a model has some hundred things.
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes, const std::vector<int64_t>& bytes);

}  // namespace oxibonsai::cpu
