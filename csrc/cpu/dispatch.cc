#include "cpu/dispatch.h"

#include <cstdlib>
#include <deque>

#include "base/check.h"
#include "cpu/features.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu {
namespace {

struct Tier {
  const char* name;
  bool available;
  void (*fill)(KernelTable&);
};

// Lowest first; a tier takes every function that it does not set from the one before it.
std::vector<Tier> tiers() {
  std::vector<Tier> all = {{"scalar", true, &scalar::fill}};
#if defined(OXIBONSAI_TIER_AVX2)
  all.push_back({"avx2", features().avx2, &avx2::fill});
#if defined(OXIBONSAI_TIER_AVXVNNI)
  all.push_back({"avxvnni", features().avxvnni, &avxvnni::fill});
#endif
  all.push_back({"avx512", features().avx512, &avx512::fill});
  all.push_back({"avx512vnni", features().avx512vnni, &avx512vnni::fill});
#endif
#if defined(OXIBONSAI_TIER_NEON)
  all.push_back({"neon", features().neon, &neon::fill});
#endif
#if defined(OXIBONSAI_TIER_SIMD128)
  all.push_back(
      {"simd128", true, &simd128::fill});  // a module with its instructions is loaded whole
#endif
  return all;
}

std::deque<KernelTable> build_tables() {
  std::deque<KernelTable> tables;
  KernelTable current{};
  for (const Tier& tier : tiers()) {
    if (!tier.available) continue;
    tier.fill(current);
    current.name = tier.name;
    tables.push_back(current);
  }
  return tables;
}

const std::deque<KernelTable>& tables() {
  static const std::deque<KernelTable> built = build_tables();
  return built;
}

const KernelTable& choose() {
  const char* forced = std::getenv("OXIBONSAI_ISA");
  if (forced == nullptr || *forced == '\0') return tables().back();
  try {
    return table(forced);
  } catch (const UnsupportedError& e) {
    throw UnsupportedError(std::string("OXIBONSAI_ISA: ") + e.what());
  }
}

}  // namespace

std::vector<std::string> available_tiers() {
  std::vector<std::string> names;
  for (const KernelTable& t : tables()) names.emplace_back(t.name);
  return names;
}

const KernelTable& table(const std::string& name) {
  std::string known;
  for (const KernelTable& t : tables()) {
    if (name == t.name) return t;
    known += (known.empty() ? "" : ", ") + std::string(t.name);
  }
  throw UnsupportedError("no tier is called " + name + " on this machine; available: " + known);
}

const KernelTable& kernels() {
  static const KernelTable& chosen = choose();
  return chosen;
}

}  // namespace oxibonsai::cpu
