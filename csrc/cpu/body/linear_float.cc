#include "simd.h"
//
#include "cpu/body/linear_float.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_linear_float(KernelTable& table) {
  table.linear[static_cast<int>(quant::QuantType::kF32)] = {&linear_float<RowsF32>, 0};
  table.linear[static_cast<int>(quant::QuantType::kF16)] = {&linear_float<RowsF16>, 0};
  table.linear[static_cast<int>(quant::QuantType::kBF16)] = {&linear_float<RowsBF16>, 0};
  table.linear[static_cast<int>(quant::QuantType::kF8_E4M3)] = {&linear_float<RowsF8E4M3>, 0};
  table.linear[static_cast<int>(quant::QuantType::kF8_E5M2)] = {&linear_float<RowsF8E5M2>, 0};
}

}  // namespace oxibonsai::cpu::OXI_TIER
