#include "cpu/body/fill_all.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::avx2 {

void fill(KernelTable& table) {
  fill_floats(table);
  fill_dot_products(table);
  fill_linear_1bit(table);
  fill_lookup_tables(table);
}

}  // namespace oxibonsai::cpu::avx2
