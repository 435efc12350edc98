#include "simd.h"
//
#include "cpu/body/math.h"
//
#include "cpu/body/picture.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_picture(KernelTable& table) {
  table.modulate = &modulate;
  table.add_gated = &add_gated;
  table.conv_tile = &conv_tile;
  table.norm_pixels = &norm_pixels;
  table.sum_pixels = &sum_pixels;
}

}  // namespace oxibonsai::cpu::OXI_TIER
