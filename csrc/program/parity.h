#pragma once

#include <string>
#include <vector>

#include "program/op.h"

namespace oxibonsai::program {

// Runs every kind of kernel that the operations use in two tiers, matrices on slices of their rows
// with both tails, and compares the bytes. Returns what differs, in words; empty: nothing does.
// Weights must be packed for `tier`; `definition` reads their stored form.
std::vector<std::string> compare_kernels(const std::vector<Op>& ops, const std::vector<Slot>& slots,
                                         const cpu::KernelTable& tier,
                                         const cpu::KernelTable& definition);

}  // namespace oxibonsai::program
