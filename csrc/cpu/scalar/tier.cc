#include "cpu/body/fill.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::scalar {

void fill(KernelTable& table) {
  fill_norm(table);
  fill_picture(table);
  fill_recurrence(table);
  fill_elementwise(table);
  fill_attention(table);
  fill_linear_float(table);
  fill_fma_peak(table);
  fill_linear(table);
}

}  // namespace oxibonsai::cpu::scalar
