#include "cpu/neon/simd.h"
//
#include "cpu/body/math.h"
//
#include "cpu/body/attention.h"
#include "cpu/neon/tier.h"

namespace oxibonsai::cpu::neon {

void fill_attention(KernelTable& table) {
  table.attend = &attend;
  table.fold_parts = &fold_parts;
}

}  // namespace oxibonsai::cpu::neon
