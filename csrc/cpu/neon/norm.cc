#include "cpu/neon/simd.h"
//
#include "cpu/body/norm.h"
#include "cpu/neon/tier.h"

namespace oxibonsai::cpu::neon {

void fill_norm(KernelTable& table) {
  table.rms_norm = &rms_norm;
  table.layer_norm = &layer_norm;
}

}  // namespace oxibonsai::cpu::neon
