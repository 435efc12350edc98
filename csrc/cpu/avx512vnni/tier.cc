#include "cpu/body/fill.h"
#include "cpu/features.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::avx512vnni {

// Permutes of bytes, where the processor has them, give the same bytes: one tier.
void fill(KernelTable& table) {
  fill_linear_ternary(table);
  fill_linear_4to8bit(table);
  fill_linear_k(table);
  fill_linear_codebook(table);
  fill_int8_peak(table);
  if (features().avx512vbmi) avx512vbmi::fill(table);
}

}  // namespace oxibonsai::cpu::avx512vnni
