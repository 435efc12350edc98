#include "dot.h"
//
#include "cpu/body/linear_tiles.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_linear_4to8bit(KernelTable& table) {
  using quant::QuantType;
  fill_tiles<QuantType::kQ8_0, QuantType::kQ4_0, QuantType::kQ4_1, QuantType::kQ5_0,
             QuantType::kQ5_1, QuantType::kQ8_K>(table);
  table.linear[static_cast<int>(QuantType::kQ8_1)] =
      table.linear[static_cast<int>(QuantType::kQ8_0)];  // of the same tile form
}

}  // namespace oxibonsai::cpu::OXI_TIER
