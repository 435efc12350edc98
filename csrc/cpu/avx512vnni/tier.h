#pragma once

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu::avx512vnni {

// Each sets the slots that the file of its name implements.
void fill_linear_ternary(KernelTable& table);
void fill_linear_4to8bit(KernelTable& table);
void fill_linear_k(KernelTable& table);
void fill_linear_levels(KernelTable& table);
void fill_int8_peak(KernelTable& table);

// All of them.
void fill(KernelTable& table);

}  // namespace oxibonsai::cpu::avx512vnni
