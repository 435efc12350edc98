#include "cpu/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "base/aligned.h"

namespace oxibonsai::cpu {

MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes, const std::vector<int64_t>& bytes) {
  MemoryPlan plan;
  plan.offsets.resize(lifetimes.size());
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  const auto meet = [&](size_t a, size_t b) {
    return lifetimes[a].first <= lifetimes[b].last && lifetimes[b].first <= lifetimes[a].last;
  };
  std::vector<size_t> placed;  // by offset
  for (const size_t thing : order) {
    if (bytes[thing] == 0) break;
    int64_t offset = 0;
    for (const size_t other : placed) {
      if (plan.offsets[other] >= offset + bytes[thing]) break;
      if (meet(thing, other))
        offset = std::max(offset, plan.offsets[other] + aligned(bytes[other]));
    }
    plan.offsets[thing] = offset;
    const auto after = [&](int64_t o, size_t other) { return o < plan.offsets[other]; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset, after), thing);
    plan.bytes = std::max(plan.bytes, offset + aligned(bytes[thing]));
  }
  return plan;
}

}  // namespace oxibonsai::cpu
