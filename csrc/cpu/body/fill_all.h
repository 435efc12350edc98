#pragma once

// The bodies that a tier fills together. Internal: tiers share no function
// (tests/test_isa_objects.py).

#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {
namespace {

// Those of a tier with simd.h.
inline void fill_floats(KernelTable& table) {
  fill_norm(table);
  fill_picture(table);
  fill_recurrence(table);
  fill_elementwise(table);
  fill_attention(table);
  fill_linear_float(table);
  fill_fma_peak(table);
}

// Those of a tier with dot.h.
inline void fill_dot_products(KernelTable& table) {
  fill_linear_ternary(table);
  fill_linear_4to8bit(table);
  fill_linear_k(table);
  fill_linear_codebook(table);
  fill_int8_peak(table);
}

}  // namespace
}  // namespace oxibonsai::cpu::OXI_TIER
