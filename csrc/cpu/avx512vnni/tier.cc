#include "cpu/body/fill_all.h"
#include "cpu/features.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::avx512vnni {

// Permutes of bytes, where the processor has them, give the same bytes: one tier.
void fill(KernelTable& table) {
  fill_dot_products(table);
  if (features().avx512vbmi) avx512vbmi::fill(table);
}

}  // namespace oxibonsai::cpu::avx512vnni
