#include "cpu/body/fill.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::simd128 {

void fill(KernelTable& table) {
  fill_norm(table);
  fill_picture(table);
  fill_recurrence(table);
  fill_elementwise(table);
  fill_attention(table);
  fill_linear_float(table);
  fill_fma_peak(table);
  fill_linear_ternary(table);
  fill_linear_1bit(table);
  fill_lookup_tables(table);
  fill_linear_4to8bit(table);
  fill_linear_k(table);
  fill_linear_codebook(table);
  fill_int8_peak(table);
}

}  // namespace oxibonsai::cpu::simd128
