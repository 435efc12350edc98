#pragma once

// What the files of one tier fill of the kernel table. OXI_TIER is the tier that a file is compiled
// for, and the name of its namespace (oxi_add_tier in cmake/OxiTargets.cmake).

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu::OXI_TIER {

// Each sets the functions that body/NAME.cc implements, in a tier whose folder has simd.h,
void fill_attention(KernelTable& table);
void fill_elementwise(KernelTable& table);
void fill_fma_peak(KernelTable& table);
void fill_linear_float(KernelTable& table);
void fill_norm(KernelTable& table);
void fill_picture(KernelTable& table);
void fill_recurrence(KernelTable& table);
// dot.h,
void fill_int8_peak(KernelTable& table);
void fill_linear_4to8bit(KernelTable& table);
void fill_linear_k(KernelTable& table);
void fill_linear_codebook(KernelTable& table);
void fill_linear_ternary(KernelTable& table);
// bytes.h as well, or that has a file of that name itself.
void fill_linear_1bit(KernelTable& table);

// Each sets the functions that the file of its name in the folder of some tiers implements.
void fill_linear(KernelTable& table);
void fill_lookup_tables(KernelTable& table);

}  // namespace oxibonsai::cpu::OXI_TIER
