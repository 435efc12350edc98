#include "cpu/body/fill.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::avx512vbmi {

void fill(KernelTable& table) {
  fill_linear_1bit(table);
  fill_linear_ternary(table);
}

}  // namespace oxibonsai::cpu::avx512vbmi
