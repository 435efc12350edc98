// What lives at the same time has memory of its own; the rest shares, whatever its size.

#include "check.h"
#include "cpu/memory_plan.h"

using namespace oxibonsai;
using cpu::Lifetime;
using cpu::MemoryPlan;

namespace {

void check_apart(const MemoryPlan& plan, const std::vector<Lifetime>& lives,
                 const std::vector<int64_t>& bytes, const std::string& what) {
  for (size_t a = 0; a < lives.size(); ++a) {
    CHECK(plan.offsets[a] % 64 == 0, what + ": begins on a cache line");
    CHECK(plan.offsets[a] + bytes[a] <= plan.bytes, what + ": ends within the block");
    for (size_t b = 0; b < a; ++b) {
      const bool meet = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
      const bool overlap = plan.offsets[a] < plan.offsets[b] + bytes[b] &&
                           plan.offsets[b] < plan.offsets[a] + bytes[a];
      CHECK(!meet || !overlap, what + ": lives at the same time and overlaps");
    }
  }
}

}  // namespace

int main() {
  // A tower's layer, in megabytes: the state, a norm, queries (where their result lies), keys,
  // values, their pages; the state, a norm and the MLP's inner values.
  const std::vector<Lifetime> layer = {{0, 6}, {0, 1}, {1, 6}, {1, 5}, {1, 5},
                                       {3, 5}, {6, 9}, {7, 8}, {8, 9}};
  std::vector<int64_t> bytes = {16, 16, 16, 16, 16, 32, 16, 16, 64};
  for (int64_t& b : bytes) b <<= 20;
  const MemoryPlan plan = cpu::plan_memory(layer, bytes);
  check_apart(plan, layer, bytes, "a layer");
  CHECK(plan.bytes == int64_t{96} << 20, "a layer takes what lives in its largest stage");

  uint32_t random = 1;
  const auto draw = [&](uint32_t end) {
    random = random * 1664525u + 1013904223u;
    return static_cast<int>((random >> 8) % end);
  };
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> lives;
    std::vector<int64_t> sizes;
    for (int i = 0; i < 60; ++i) {
      const int first = draw(40);
      lives.push_back({first, first + draw(9)});
      sizes.push_back(draw(5) == 0 ? 0 : draw(5000));
    }
    check_apart(cpu::plan_memory(lives, sizes), lives, sizes, "round " + std::to_string(round));
  }
  return test::finish("memory_plan");
}
