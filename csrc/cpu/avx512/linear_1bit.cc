#include "cpu/avx512/dot.h"
//
#include "cpu/avx512/tier.h"
#include "cpu/body/linear_tiles.h"

namespace oxibonsai::cpu::avx512 {

void fill_linear_1bit(KernelTable& table) {
  using quant::QuantType;
  table.linear[static_cast<int>(QuantType::kQ1_0)] = {&linear_tiles<QuantType::kQ1_0>, dot::kRows};
}

}  // namespace oxibonsai::cpu::avx512
