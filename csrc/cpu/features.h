#pragma once

namespace oxibonsai::cpu {

// Instruction sets that both the processor has and the operating system saves on a context switch.
struct Features {
  bool avx2 = false;        // AVX2, FMA, F16C
  bool avxvnni = false;     // the above and AVX-VNNI
  bool avx512 = false;      // AVX2 and AVX-512 F, BW, VL, DQ
  bool avx512vnni = false;  // the above and VNNI
  bool avx512vbmi = false;  // the above and VBMI
  bool neon = false;
  bool dotprod = false;  // the Arm dot product instructions
};

// Read once.
const Features& features();

}  // namespace oxibonsai::cpu
