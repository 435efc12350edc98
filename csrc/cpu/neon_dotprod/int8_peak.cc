#include "cpu/neon_dotprod/dot.h"
//
#include "cpu/body/int8_peak.h"
#include "cpu/neon_dotprod/tier.h"

namespace oxibonsai::cpu::neon_dotprod {

void fill_int8_peak(KernelTable& table) { table.int8_peak = &int8_peak; }

}  // namespace oxibonsai::cpu::neon_dotprod
