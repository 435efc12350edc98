#include "cpu/avx2/simd.h"
//
#include "cpu/avx2/tier.h"
#include "cpu/body/norm.h"

namespace oxibonsai::cpu::avx2 {

void fill_norm(KernelTable& table) {
  table.rms_norm = &rms_norm;
  table.layer_norm = &layer_norm;
}

}  // namespace oxibonsai::cpu::avx2
