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

// Beside those of quant::traits(): retired, of other numbers than weights, or of several layouts.
constexpr TensorType kOtherTypes[] = {
    {4, "Q4_2", 0, 0},         {5, "Q4_3", 0, 0},
    {24, "I8", 1, 1},          {25, "I16", 1, 2},
    {26, "I32", 1, 4},         {27, "I64", 1, 8},
    {28, "F64", 1, 8},         {31, "Q4_0_4_4", 0, 0},
    {32, "Q4_0_4_8", 0, 0},    {33, "Q4_0_8_8", 0, 0},
    {kIdI2S, "I2_S", 128, 32}, {37, "IQ4_NL_4_8", 0, 0},
    {38, "IQ4_NL_8_8", 0, 0},  {kIdAmbiguous2Bit, "Q2_0", 64, 18},
};

}  // namespace

const char* value_type_name(ValueType type) { return kValues[static_cast<int>(type)].name; }

int value_type_size(ValueType type) { return kValues[static_cast<int>(type)].size; }

std::optional<TensorType> find_tensor_type(int32_t id) {
  for (const TensorType& t : kOtherTypes)
    if (t.id == id) return t;
  const auto type = quant_type_of(id);
  if (!type) return std::nullopt;
  const quant::QuantTraits& t = quant::traits(*type);
  return TensorType{t.gguf_id, t.name, t.group, t.bytes};
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
