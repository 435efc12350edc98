#include "cpu/avx512/simd.h"
//
#include "cpu/body/math.h"
//
#include "cpu/body/kv_types.h"
//
#include "cpu/avx512/tier.h"
#include "cpu/body/attention.h"

namespace oxibonsai::cpu::avx512 {

void fill_attention(KernelTable& table) {
  table.attend = &attend;
  table.fold_parts = &fold_parts;
  table.round_kv = &round_kv;
}

}  // namespace oxibonsai::cpu::avx512
