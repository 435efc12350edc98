#include "cpu/avx512vnni/tier.h"

namespace oxibonsai::cpu::avx512vnni {

void fill(KernelTable& table) {
  fill_linear_ternary(table);
  fill_linear_4to8bit(table);
  fill_linear_k(table);
}

}  // namespace oxibonsai::cpu::avx512vnni
