#include "cpu/neon_dotprod/dot.h"
//
#include "cpu/body/linear_tiles.h"
#include "cpu/neon_dotprod/tier.h"

namespace oxibonsai::cpu::neon_dotprod {

void fill_linear_levels(KernelTable& table) {
  using quant::QuantType;
  table.linear[static_cast<int>(QuantType::kIQ4_NL)] = {&linear_tiles<QuantType::kIQ4_NL>,
                                                        dot::kRows};
  table.linear[static_cast<int>(QuantType::kIQ4_XS)] = {&linear_tiles<QuantType::kIQ4_XS>,
                                                        dot::kRows};
  table.linear[static_cast<int>(QuantType::kMXFP4)] = {&linear_tiles<QuantType::kMXFP4>,
                                                       dot::kRows};
  table.linear[static_cast<int>(QuantType::kNVFP4)] = {&linear_tiles<QuantType::kNVFP4>,
                                                       dot::kRows};
  table.linear[static_cast<int>(QuantType::kIQ2_XXS)] = {&linear_tiles<QuantType::kIQ2_XXS>,
                                                         dot::kRows};
  table.linear[static_cast<int>(QuantType::kIQ2_XS)] = {&linear_tiles<QuantType::kIQ2_XS>,
                                                        dot::kRows};
  table.linear[static_cast<int>(QuantType::kIQ3_XXS)] = {&linear_tiles<QuantType::kIQ3_XXS>,
                                                         dot::kRows};
  table.linear[static_cast<int>(QuantType::kIQ3_S)] = {&linear_tiles<QuantType::kIQ3_S>,
                                                       dot::kRows};
  table.linear[static_cast<int>(QuantType::kIQ1_S)] = {&linear_tiles<QuantType::kIQ1_S>,
                                                       dot::kRows};
  table.linear[static_cast<int>(QuantType::kIQ1_M)] = {&linear_tiles<QuantType::kIQ1_M>,
                                                       dot::kRows};
  table.linear[static_cast<int>(QuantType::kIQ2_S)] =
      table.linear[static_cast<int>(QuantType::kIQ2_XS)];  // of the same tile form
}

}  // namespace oxibonsai::cpu::neon_dotprod
