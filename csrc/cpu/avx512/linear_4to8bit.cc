#include "cpu/avx512/dot.h"
//
#include "cpu/avx512/tier.h"
#include "cpu/body/linear_tiles.h"

namespace oxibonsai::cpu::avx512 {

void fill_linear_4to8bit(KernelTable& table) {
  using quant::QuantType;
  table.linear[static_cast<int>(QuantType::kQ8_0)] = {&linear_tiles<QuantType::kQ8_0>, dot::kRows};
  table.linear[static_cast<int>(QuantType::kQ4_0)] = {&linear_tiles<QuantType::kQ4_0>, dot::kRows};
  table.linear[static_cast<int>(QuantType::kQ4_1)] = {&linear_tiles<QuantType::kQ4_1>, dot::kRows};
  table.linear[static_cast<int>(QuantType::kQ5_0)] = {&linear_tiles<QuantType::kQ5_0>, dot::kRows};
  table.linear[static_cast<int>(QuantType::kQ5_1)] = {&linear_tiles<QuantType::kQ5_1>, dot::kRows};
  table.linear[static_cast<int>(QuantType::kQ8_1)] =
      table.linear[static_cast<int>(QuantType::kQ8_0)];  // of the same tile form
  table.linear[static_cast<int>(QuantType::kQ8_K)] = {&linear_tiles<QuantType::kQ8_K>, dot::kRows};
}

}  // namespace oxibonsai::cpu::avx512
