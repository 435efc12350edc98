#include "cpu/body/fill_all.h"
#include "cpu/features.h"
#include "cpu/tiers.h"

namespace oxibonsai::cpu::neon {

// The dot product instructions, where the processor has them, give the same bytes: one tier.
void fill(KernelTable& table) {
  fill_floats(table);
  fill_dot_products(table);
  fill_linear_1bit(table);
  fill_lookup_tables(table);
  if (features().dotprod) neon_dotprod::fill(table);
}

}  // namespace oxibonsai::cpu::neon
