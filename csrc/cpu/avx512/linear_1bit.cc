#include "cpu/avx512/lanes.h"
//
#include "cpu/avx512/bytes.h"
//
#include "cpu/avx512/tier.h"
#include "cpu/body/linear_1bit.h"

namespace oxibonsai::cpu::avx512 {

void fill_linear_1bit(KernelTable& table) {
  using quant::QuantType;
  table.linear[static_cast<int>(QuantType::kQ1_0)] = {&linear_1bit, bytes::kRows,
                                                      TileForm::kByteRows};
}

}  // namespace oxibonsai::cpu::avx512
