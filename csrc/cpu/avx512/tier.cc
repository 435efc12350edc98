#include "cpu/body/fill_all.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::avx512 {

void fill(KernelTable& table) {
  fill_floats(table);
  fill_dot_products(table);
  fill_linear_1bit(table);
}

}  // namespace oxibonsai::cpu::avx512
