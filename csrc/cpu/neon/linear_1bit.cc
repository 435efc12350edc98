#include "cpu/neon/dot.h"
//
#include "cpu/body/linear_tiles.h"
#include "cpu/neon/tier.h"

namespace oxibonsai::cpu::neon {

void fill_linear_1bit(KernelTable& table) {
  using quant::QuantType;
  table.linear[static_cast<int>(QuantType::kQ1_0)] = {&linear_tiles<QuantType::kQ1_0>, dot::kRows};
}

}  // namespace oxibonsai::cpu::neon
