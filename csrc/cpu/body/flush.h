// Results too small to matter become +0, so that no later operation meets a subnormal number
// (docs/arithmetic.md, rule 11). Include after a tier's simd.h.

#pragma once

#include "cpu/kernel_table.h"

namespace {

inline simd::Vec flush_tiny(simd::Vec a) { return simd::flush_below(a, oxibonsai::cpu::kTiny); }

}  // namespace
