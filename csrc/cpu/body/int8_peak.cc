#include "dot.h"
//
#include "cpu/body/int8_peak.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_int8_peak(KernelTable& table) { table.int8_peak = &int8_peak; }

}  // namespace oxibonsai::cpu::OXI_TIER
