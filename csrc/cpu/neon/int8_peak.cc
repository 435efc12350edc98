#include "cpu/neon/dot.h"
//
#include "cpu/body/int8_peak.h"
#include "cpu/neon/tier.h"

namespace oxibonsai::cpu::neon {

void fill_int8_peak(KernelTable& table) { table.int8_peak = &int8_peak; }

}  // namespace oxibonsai::cpu::neon
