#include "cpu/avx2/dot.h"
//
#include "cpu/avx2/tier.h"
#include "cpu/body/int8_peak.h"

namespace oxibonsai::cpu::avx2 {

void fill_int8_peak(KernelTable& table) { table.int8_peak = &int8_peak; }

}  // namespace oxibonsai::cpu::avx2
