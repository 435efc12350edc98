#include "dot.h"
//
#include "cpu/body/linear_tiles.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_linear_k(KernelTable& table) {
  using quant::QuantType;
  fill_tiles<QuantType::kQ2_K, QuantType::kQ3_K, QuantType::kQ4_K, QuantType::kQ5_K,
             QuantType::kQ6_K>(table);
}

}  // namespace oxibonsai::cpu::OXI_TIER
