#include "simd.h"
//
#include "cpu/body/fma_peak.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_fma_peak(KernelTable& table) { table.fma_peak = &fma_peak; }

}  // namespace oxibonsai::cpu::OXI_TIER
