#include "dot.h"
//
#include "cpu/body/linear_tiles.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_linear_ternary(KernelTable& table) {
  using quant::QuantType;
  // Types of one tile form share its kernel.
  const LinearKernel group64 = {&linear_tiles<QuantType::kQ2_0_g64>, dot::kRows};
  const LinearKernel group128 = {&linear_tiles<QuantType::kQ2_0_g128>, dot::kRows};
  const LinearKernel group256 = {&linear_tiles<QuantType::kTQ2_0>, dot::kRows};
  table.linear[static_cast<int>(QuantType::kQ2_0_g64)] = group64;
  table.linear[static_cast<int>(QuantType::kQ2_0_g128)] = group128;
  table.linear[static_cast<int>(QuantType::kPTQ1_0)] = group128;
  table.linear[static_cast<int>(QuantType::kTQ2_0_g128)] = group128;
  table.linear[static_cast<int>(QuantType::kTQ1_0)] = group256;
  table.linear[static_cast<int>(QuantType::kTQ2_0)] = group256;
}

}  // namespace oxibonsai::cpu::OXI_TIER
