#include "cpu/avx512/simd.h"
//
#include "cpu/avx512/tier.h"
#include "cpu/body/norm.h"

namespace oxibonsai::cpu::avx512 {

void fill_norm(KernelTable& table) {
  table.rms_norm = &rms_norm;
  table.layer_norm = &layer_norm;
}

}  // namespace oxibonsai::cpu::avx512
