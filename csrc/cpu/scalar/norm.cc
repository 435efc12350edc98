#include "cpu/scalar/simd.h"
//
#include "cpu/body/norm.h"
#include "cpu/scalar/tier.h"

namespace oxibonsai::cpu::scalar {

void fill_norm(KernelTable& table) {
  table.rms_norm = &rms_norm;
  table.layer_norm = &layer_norm;
}

}  // namespace oxibonsai::cpu::scalar
