#include "cpu/neon/lanes.h"
//
#include "cpu/neon/bytes.h"
//
#include "cpu/body/linear_1bit.h"
#include "cpu/neon/tier.h"

namespace oxibonsai::cpu::neon {

void fill_linear_1bit(KernelTable& table) {
  using quant::QuantType;
  table.linear[static_cast<int>(QuantType::kQ1_0)] = {&linear_1bit, bytes::kRows,
                                                      TileForm::kByteRows};
}

}  // namespace oxibonsai::cpu::neon
