#pragma once

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu::avx2 {

// Each sets the slots that the file of its name implements.
void fill_norm(KernelTable& table);
void fill_elementwise(KernelTable& table);
void fill_attention(KernelTable& table);
void fill_linear_float(KernelTable& table);
void fill_linear_ternary(KernelTable& table);
void fill_linear_1bit(KernelTable& table);
void fill_lookup_tables(KernelTable& table);
void fill_linear_4to8bit(KernelTable& table);
void fill_linear_k(KernelTable& table);
void fill_linear_levels(KernelTable& table);
void fill_int8_peak(KernelTable& table);

// All of them.
void fill(KernelTable& table);

}  // namespace oxibonsai::cpu::avx2
