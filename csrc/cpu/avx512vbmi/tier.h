#pragma once

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu::avx512vbmi {

void fill_linear_1bit(KernelTable& table);

// All of them: what the tier avx512vnni does faster on processors that also have VBMI.
void fill(KernelTable& table);

}  // namespace oxibonsai::cpu::avx512vbmi
