#include "simd.h"
//
#include "cpu/body/math.h"
//
#include "cpu/body/kv_types.h"
//
#include "cpu/body/key_values.h"
//
#include "cpu/body/attention.h"
//
#include "cpu/body/fill.h"

namespace oxibonsai::cpu::OXI_TIER {

void fill_attention(KernelTable& table) {
  table.attend = &attend;
  table.merge_parts = &merge_parts;
  table.round_kv = &round_kv;
}

}  // namespace oxibonsai::cpu::OXI_TIER
