#include "cpu/body/fill_all.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::avxvnni {

void fill(KernelTable& table) { fill_dot_products(table); }

}  // namespace oxibonsai::cpu::avxvnni
