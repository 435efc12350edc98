#pragma once

#include "cpu/kernel_table.h"

namespace oxibonsai::cpu {

// Each sets the functions that a tier implements itself (NAME/tier.cc). A build has the tiers of
// one processor family.
namespace scalar {
void fill(KernelTable& table);
}
namespace avx2 {
void fill(KernelTable& table);
}
namespace avxvnni {
void fill(KernelTable& table);
}
namespace avx512 {
void fill(KernelTable& table);
}
namespace avx512vnni {
void fill(KernelTable& table);
}
namespace avx512vbmi {  // what avx512vnni does faster on processors that also have VBMI
void fill(KernelTable& table);
}
namespace neon {
void fill(KernelTable& table);
}
namespace neon_dotprod {  // what neon does faster on processors with the dot product extension
void fill(KernelTable& table);
}
namespace simd128 {  // of WebAssembly
void fill(KernelTable& table);
}

}  // namespace oxibonsai::cpu
