#include "cpu/body/fill.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::avxvnni {

void fill(KernelTable& table) {
  fill_linear_ternary(table);
  fill_linear_4to8bit(table);
  fill_linear_k(table);
  fill_linear_codebook(table);
  fill_int8_peak(table);
}

}  // namespace oxibonsai::cpu::avxvnni
