#include "cpu/avx2/dot.h"
//
#include "cpu/avx2/tier.h"
#include "cpu/body/linear_tiles.h"

namespace oxibonsai::cpu::avx2 {

void fill_linear_k(KernelTable& table) {
  using quant::QuantType;
  table.linear[static_cast<int>(QuantType::kQ2_K)] = {&linear_tiles<QuantType::kQ2_K>, dot::kRows};
  table.linear[static_cast<int>(QuantType::kQ3_K)] = {&linear_tiles<QuantType::kQ3_K>, dot::kRows};
  table.linear[static_cast<int>(QuantType::kQ4_K)] = {&linear_tiles<QuantType::kQ4_K>, dot::kRows};
  table.linear[static_cast<int>(QuantType::kQ5_K)] = {&linear_tiles<QuantType::kQ5_K>, dot::kRows};
  table.linear[static_cast<int>(QuantType::kQ6_K)] = {&linear_tiles<QuantType::kQ6_K>, dot::kRows};
}

}  // namespace oxibonsai::cpu::avx2
