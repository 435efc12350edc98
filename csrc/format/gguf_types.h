#pragma once

#include <cstdint>
#include <optional>

#include "quant/quant_type.h"

namespace oxibonsai::format {

// Types of metadata values, with GGUF's numbers.
enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kCount,
};

const char* value_type_name(ValueType type);
// Bytes of a number or bool; 0 for strings and arrays.
int value_type_size(ValueType type);

// Id 42 stands for three layouts; gguf_layout.h tells them apart.
constexpr int32_t kIdAmbiguous2Bit = 42;
// BitNet's I2_S: 2-bit codes without scales; one binary32 scale, padded, follows those of a tensor.
constexpr int32_t kIdI2S = 36;
constexpr uint64_t kI2SScaleBytes = 32;

// A tensor type id of a file: every one that GGUF has defined, also those without a decoder here.
struct TensorType {
  int32_t id;
  const char* name;
  int32_t group;  // weights in a block; 0: the id is retired
  int32_t bytes;  // bytes in a block
};

// Nothing where no such id is known.
std::optional<TensorType> find_tensor_type(int32_t id);
// What decodes it, if anything does. Not for id 42.
std::optional<quant::QuantType> quant_type_of(int32_t id);

}  // namespace oxibonsai::format
