#include "cpu/avx2/simd.h"
//
#include "cpu/body/math.h"
//
#include "cpu/avx2/tier.h"
#include "cpu/body/attention.h"

namespace oxibonsai::cpu::avx2 {

void fill_attention(KernelTable& table) {
  table.attend = &attend;
  table.fold_parts = &fold_parts;
}

}  // namespace oxibonsai::cpu::avx2
