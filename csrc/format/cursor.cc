#include "format/cursor.h"

namespace oxibonsai::format {
namespace {

constexpr int kDeepestArray = 8;

}  // namespace

void Cursor::skip_value(ValueType type, const std::string& field, int depth) {
  if (type == ValueType::kString) {
    string(field);
    return;
  }
  if (type == ValueType::kBool) {
    if (const auto value = number<uint8_t>(field); value > 1) {
      --at_;
      fail(field, "is a bool of value " + std::to_string(value) + ", neither 0 nor 1");
    }
    return;
  }
  if (type != ValueType::kArray) {
    skip_bytes(static_cast<uint64_t>(value_type_size(type)), field);
    return;
  }
  if (depth == kDeepestArray)
    fail(field, "nests arrays more than " + std::to_string(kDeepestArray) + " deep");
  const ValueType element = value_type(field);
  const auto count = number<uint64_t>(field);
  // The smallest element of each kind: a number, a string's length, an array's type and count.
  const uint64_t smallest = element == ValueType::kString  ? 8
                            : element == ValueType::kArray ? 12
                                                           : value_type_size(element);
  if (count > left() / smallest)
    fail(field, "claims " + std::to_string(count) + " elements, more than the file has left");
  if (element != ValueType::kString && element != ValueType::kArray &&
      element != ValueType::kBool) {
    skip_bytes(count * smallest, field);
    return;
  }
  for (uint64_t i = 0; i < count; ++i) skip_value(element, field, depth + 1);
}

}  // namespace oxibonsai::format
