#include "simd.h"
//
#include "cpu/body/math.h"
//
#include "cpu/body/fill.h"
#include "cpu/body/recurrence.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_recurrence(KernelTable& table) {
  table.conv1d = &conv1d;
  table.delta_scan = &scan<true>;
  table.linear_scan = &scan<false>;
  table.channel_scan = &channel_scan;
  table.wkv7_scan = &wkv7_scan;
}

}  // namespace oxibonsai::cpu::OXI_TIER
