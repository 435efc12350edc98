#include "cpu/avx512vbmi/tier.h"

namespace oxibonsai::cpu::avx512vbmi {

void fill(KernelTable& table) { fill_linear_1bit(table); }

}  // namespace oxibonsai::cpu::avx512vbmi
