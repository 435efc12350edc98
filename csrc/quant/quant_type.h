#pragma once

#include <cstdint>
#include <string_view>

namespace oxibonsai::quant {

// Stored formats of a tensor. A 2-bit type has its group in its name, because GGUF's id 42 has
// three rival layouts (docs/formats.md).
enum class QuantType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ1_0,
  kQ2_0_g64,
  kQ2_0_g128,
  kPTQ1_0,
  kTQ2_0_g128,
  kTQ1_0,
  kTQ2_0,
  kQ8_1,
  kQ8_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kNVFP4,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kIQ1_S,
  kIQ1_M,
  kF8_E4M3,
  kF8_E5M2,
  kCount,
};

// What the rest of the code needs to know of a type; one row a type in quant_type.cc.
struct QuantTraits {
  QuantType type;
  const char* name;  // as users write it: "Q1_0", "Q2_0_g64"
  int32_t gguf_id;   // tensor type id that a writer stores
  int32_t group;     // weights in a block
  int32_t bytes;     // bytes in a block
  // Offsets in a block of its binary16 fields (scale, minimum); -1: none, or of another kind.
  int16_t half_at[2];
  // Decodes `count` weights (a multiple of `group`) to float32, exactly as the format defines them.
  void (*decode)(const uint8_t* blocks, float* out, int64_t count);
};

const QuantTraits& traits(QuantType type);

// nullptr where no type has that name. Accepts the aliases of docs/formats.md (PQ2_0 = Q2_0_g128).
const QuantTraits* find_by_name(std::string_view name);

// Bytes of a row of `cols` weights; cols must be a multiple of the type's group.
int64_t row_bytes(QuantType type, int64_t cols);

}  // namespace oxibonsai::quant
