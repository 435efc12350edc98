#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <type_traits>

#include "base/check.h"

namespace oxibonsai::program {

// A value of a JSON document, as recorded::read_graph() asks for it; without a document behind it
// where a list or an object lacks the value. The document outlives it.
class JsonNode {
 public:
  explicit JsonNode(const nlohmann::json& value) : value_(&value) {}

  JsonNode operator[](const char* name) const {
    if (value_ == nullptr || !value_->is_object()) return JsonNode(nullptr);
    const auto found = value_->find(name);
    return JsonNode(found == value_->end() ? nullptr : &*found);
  }
  JsonNode operator[](size_t index) const {
    const bool there = value_ != nullptr && value_->is_array() && index < value_->size();
    return JsonNode(there ? &(*value_)[index] : nullptr);
  }
  // A literal 0 would be a null pointer, too.
  JsonNode operator[](int index) const { return (*this)[static_cast<size_t>(index)]; }

  bool isArray() const { return value_ != nullptr && value_->is_array(); }
  bool isNumber() const { return value_ != nullptr && value_->is_number(); }
  bool isUndefined() const { return value_ == nullptr; }
  bool isNull() const { return value_ != nullptr && value_->is_null(); }

  // RequestError where it is of another kind.
  template <class T>
  T as() const {
    bool fits = false;
    if (value_ != nullptr) {
      if constexpr (std::is_same_v<T, bool>)
        fits = value_->is_boolean();
      else if constexpr (std::is_same_v<T, std::string>)
        fits = value_->is_string();
      else
        fits = value_->is_number();
    }
    if (!fits) throw RequestError("model.json has a value of the wrong kind, or lacks it");
    return value_->get<T>();
  }

  friend size_t size_of(const JsonNode& node) {
    return node.value_ == nullptr ? 0 : node.value_->size();
  }

 private:
  explicit JsonNode(const nlohmann::json* value) : value_(value) {}

  const nlohmann::json* value_;
};

}  // namespace oxibonsai::program
