#include "dot.h"
//
#include "cpu/body/linear_tiles.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_linear_codebook(KernelTable& table) {
  using quant::QuantType;
  fill_tiles<QuantType::kIQ4_NL, QuantType::kIQ4_XS, QuantType::kMXFP4, QuantType::kNVFP4,
             QuantType::kIQ2_XXS, QuantType::kIQ2_XS, QuantType::kIQ3_XXS, QuantType::kIQ3_S,
             QuantType::kIQ1_S, QuantType::kIQ1_M>(table);
  table.linear[static_cast<int>(QuantType::kIQ2_S)] =
      table.linear[static_cast<int>(QuantType::kIQ2_XS)];  // of the same tile form
}

}  // namespace oxibonsai::cpu::OXI_TIER
