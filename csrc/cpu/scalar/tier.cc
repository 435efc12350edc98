#include "cpu/body/fill_all.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::scalar {

void fill(KernelTable& table) {
  fill_floats(table);
  fill_linear(table);
}

}  // namespace oxibonsai::cpu::scalar
