#pragma once

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu::scalar {

// Each sets the slots that the file of its name implements.
void fill_norm(KernelTable& table);
void fill_elementwise(KernelTable& table);
void fill_attention(KernelTable& table);
void fill_linear_float(KernelTable& table);
void fill_linear(KernelTable& table);

// All of them.
void fill(KernelTable& table);

}  // namespace oxibonsai::cpu::scalar
