#include "quant/quant_type.h"

#include <string>

#include "base/check.h"
#include "quant/codec.h"

namespace oxibonsai::quant {
namespace {

constexpr QuantTraits kTraits[] = {
    {QuantType::kF32, "F32", 0, 1, 4, {-1, -1}, decode_f32},
    {QuantType::kF16, "F16", 1, 1, 2, {0, -1}, decode_f16},
    {QuantType::kBF16, "BF16", 30, 1, 2, {-1, -1}, decode_bf16},
    {QuantType::kQ8_0, "Q8_0", 8, 32, 34, {0, -1}, decode_blocks<QuantType::kQ8_0>},
    {QuantType::kQ4_0, "Q4_0", 2, 32, 18, {0, -1}, decode_blocks<QuantType::kQ4_0>},
    {QuantType::kQ4_1, "Q4_1", 3, 32, 20, {0, 2}, decode_blocks<QuantType::kQ4_1>},
    {QuantType::kQ5_0, "Q5_0", 6, 32, 22, {0, -1}, decode_blocks<QuantType::kQ5_0>},
    {QuantType::kQ5_1, "Q5_1", 7, 32, 24, {0, 2}, decode_blocks<QuantType::kQ5_1>},
    {QuantType::kQ4_K, "Q4_K", 12, 256, 144, {0, 2}, decode_blocks<QuantType::kQ4_K>},
    {QuantType::kQ5_K, "Q5_K", 13, 256, 176, {0, 2}, decode_blocks<QuantType::kQ5_K>},
    {QuantType::kQ6_K, "Q6_K", 14, 256, 210, {208, -1}, decode_blocks<QuantType::kQ6_K>},
    {QuantType::kQ1_0, "Q1_0", 41, 128, 18, {0, -1}, decode_blocks<QuantType::kQ1_0>},
    {QuantType::kQ2_0_g64, "Q2_0_g64", 42, 64, 18, {0, -1}, decode_blocks<QuantType::kQ2_0_g64>},
    {QuantType::kQ2_0_g128,
     "Q2_0_g128",
     142,
     128,
     34,
     {0, -1},
     decode_blocks<QuantType::kQ2_0_g128>},
    {QuantType::kPTQ1_0, "PTQ1_0", 143, 128, 28, {26, -1}, decode_blocks<QuantType::kPTQ1_0>},
    {QuantType::kTQ2_0_g128,
     "TQ2_0_g128",
     42,
     128,
     34,
     {32, -1},
     decode_blocks<QuantType::kTQ2_0_g128>},
    {QuantType::kTQ1_0, "TQ1_0", 34, 256, 54, {52, -1}, decode_blocks<QuantType::kTQ1_0>},
    {QuantType::kTQ2_0, "TQ2_0", 35, 256, 66, {64, -1}, decode_blocks<QuantType::kTQ2_0>},
    {QuantType::kQ8_1, "Q8_1", 9, 32, 36, {0, -1}, decode_blocks<QuantType::kQ8_1>},
    {QuantType::kQ8_K, "Q8_K", 15, 256, 292, {-1, -1}, decode_blocks<QuantType::kQ8_K>},
    {QuantType::kQ2_K, "Q2_K", 10, 256, 84, {80, 82}, decode_blocks<QuantType::kQ2_K>},
    {QuantType::kQ3_K, "Q3_K", 11, 256, 110, {108, -1}, decode_blocks<QuantType::kQ3_K>},
    {QuantType::kIQ4_NL, "IQ4_NL", 20, 32, 18, {0, -1}, decode_blocks<QuantType::kIQ4_NL>},
    {QuantType::kIQ4_XS, "IQ4_XS", 23, 256, 136, {0, -1}, decode_blocks<QuantType::kIQ4_XS>},
    {QuantType::kMXFP4, "MXFP4", 39, 32, 17, {-1, -1}, decode_blocks<QuantType::kMXFP4>},
    {QuantType::kNVFP4, "NVFP4", 40, 64, 36, {-1, -1}, decode_blocks<QuantType::kNVFP4>},
    {QuantType::kIQ2_XXS, "IQ2_XXS", 16, 256, 66, {0, -1}, decode_blocks<QuantType::kIQ2_XXS>},
    {QuantType::kIQ2_XS, "IQ2_XS", 17, 256, 74, {0, -1}, decode_blocks<QuantType::kIQ2_XS>},
    {QuantType::kIQ2_S, "IQ2_S", 22, 256, 82, {0, -1}, decode_blocks<QuantType::kIQ2_S>},
    {QuantType::kIQ3_XXS, "IQ3_XXS", 18, 256, 98, {0, -1}, decode_blocks<QuantType::kIQ3_XXS>},
    {QuantType::kIQ3_S, "IQ3_S", 21, 256, 110, {0, -1}, decode_blocks<QuantType::kIQ3_S>},
    {QuantType::kIQ1_S, "IQ1_S", 19, 256, 50, {0, -1}, decode_blocks<QuantType::kIQ1_S>},
    {QuantType::kIQ1_M, "IQ1_M", 29, 256, 56, {-1, -1}, decode_blocks<QuantType::kIQ1_M>},
    {QuantType::kF8_E4M3, "F8_E4M3", 43, 32, 34, {32, -1}, decode_f8_e4m3},
    {QuantType::kF8_E5M2, "F8_E5M2", 44, 32, 34, {32, -1}, decode_f8_e5m2},
};
static_assert(sizeof kTraits / sizeof kTraits[0] == static_cast<int>(QuantType::kCount));

}  // namespace

const QuantTraits& traits(QuantType type) { return kTraits[static_cast<int>(type)]; }

const QuantTraits* find_by_name(std::string_view name) {
  if (name == "PQ2_0") name = "Q2_0_g128";
  for (const QuantTraits& t : kTraits)
    if (name == t.name) return &t;
  return nullptr;
}

int64_t row_bytes(QuantType type, int64_t cols) {
  const QuantTraits& t = traits(type);
  if (cols % t.group != 0)
    throw RequestError(std::string("a row of ") + std::to_string(cols) +
                       " weights is no multiple of " + t.name + "'s group of " +
                       std::to_string(t.group));
  return cols / t.group * t.bytes;
}

}  // namespace oxibonsai::quant
