#include "simd.h"
//
#include "cpu/body/norm.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_norm(KernelTable& table) {
  table.rms_norm = &rms_norm;
  table.layer_norm = &layer_norm;
}

}  // namespace oxibonsai::cpu::OXI_TIER
