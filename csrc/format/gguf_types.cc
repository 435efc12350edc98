#include "format/gguf_types.h"

namespace oxibonsai::format {
namespace {

struct ValueInfo {
  const char* name;
  int size;
};

constexpr ValueInfo kValues[] = {
    {"u8", 1},   {"i8", 1},  {"u16", 2}, {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"str", 0}, {"arr", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};
static_assert(sizeof kValues / sizeof kValues[0] == static_cast<int>(ValueType::kCount));

constexpr TensorType kTensorTypes[] = {
    {0, "F32", 1, 4},
    {1, "F16", 1, 2},
    {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},
    {4, "Q4_2", 0, 0},
    {5, "Q4_3", 0, 0},
    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},
    {31, "Q4_0_4_4", 0, 0},
    {32, "Q4_0_4_8", 0, 0},
    {33, "Q4_0_8_8", 0, 0},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {36, "IQ4_NL_4_4", 0, 0},
    {37, "IQ4_NL_4_8", 0, 0},
    {38, "IQ4_NL_8_8", 0, 0},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
    {kIdAmbiguous2Bit, "Q2_0", 64, 18},
    {43, "F8_E4M3", 32, 34},
    {44, "F8_E5M2", 32, 34},
    {142, "Q2_0_g128", 128, 34},
    {143, "PTQ1_0", 128, 28},
};

}  // namespace

const char* value_type_name(ValueType type) { return kValues[static_cast<int>(type)].name; }

int value_type_size(ValueType type) { return kValues[static_cast<int>(type)].size; }

const TensorType* find_tensor_type(int32_t id) {
  for (const TensorType& t : kTensorTypes)
    if (t.id == id) return &t;
  return nullptr;
}

std::optional<quant::QuantType> quant_type_of(int32_t id) {
  if (id == kIdAmbiguous2Bit) return std::nullopt;
  for (int i = 0; i < static_cast<int>(quant::QuantType::kCount); ++i) {
    const auto type = static_cast<quant::QuantType>(i);
    if (quant::traits(type).gguf_id == id) return type;
  }
  return std::nullopt;
}

}  // namespace oxibonsai::format
