#pragma once

#include <string>
#include <vector>

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu {

// The tiers that this build holds and this machine can run, lowest first: "scalar", "avx2", ...
std::vector<std::string> available_tiers();

// The complete table of one tier: its own functions over those of the tiers below it.
// UnsupportedError lists the available ones where the name is unknown or the machine lacks it.
const KernelTable& table(const std::string& tier);

// The tier in use, chosen at the first call: OXIBONSAI_ISA, else the highest available one.
const KernelTable& kernels();

}  // namespace oxibonsai::cpu
