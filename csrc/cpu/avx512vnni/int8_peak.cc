#include "cpu/avx512vnni/dot.h"
//
#include "cpu/avx512vnni/tier.h"
#include "cpu/body/int8_peak.h"

namespace oxibonsai::cpu::avx512vnni {

void fill_int8_peak(KernelTable& table) { table.int8_peak = &int8_peak; }

}  // namespace oxibonsai::cpu::avx512vnni
