#include "dot.h"
//
#include "bytes.h"
//
#include "cpu/body/linear_1bit.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_linear_1bit(KernelTable& table) {
  using quant::QuantType;
  table.linear[static_cast<int>(QuantType::kQ1_0)] = {&linear_1bit, bytes::kRows,
                                                      TileForm::kByteRows};
}

}  // namespace oxibonsai::cpu::OXI_TIER
