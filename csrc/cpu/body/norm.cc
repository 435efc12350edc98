#include "simd.h"
//
#include "cpu/body/norm.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_norm(KernelTable& table) {
  table.rms_norm = &rms_norm;
  table.layer_norm = &layer_norm;
  table.match_rms = &match_rms;
  table.gaussian_top_k = &gaussian_top_k;
}

}  // namespace oxibonsai::cpu::OXI_TIER
