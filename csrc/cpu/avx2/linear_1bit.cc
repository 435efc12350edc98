#include "cpu/avx2/dot.h"
//
#include "cpu/avx2/bytes.h"
//
#include "cpu/avx2/tier.h"
#include "cpu/body/linear_1bit.h"

namespace oxibonsai::cpu::avx2 {

void fill_linear_1bit(KernelTable& table) {
  using quant::QuantType;
  table.linear[static_cast<int>(QuantType::kQ1_0)] = {&linear_1bit, bytes::kRows,
                                                      TileForm::kByteRows};
}

}  // namespace oxibonsai::cpu::avx2
