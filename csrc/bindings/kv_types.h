#pragma once

#include <string>
#include <variant>
#include <vector>

#include "graph/kv_layout.h"

namespace oxibonsai::bindings {

// As Python names the types of a cache: one for all layers, or one each.
using TypeNames = std::variant<std::string, std::vector<std::string>>;

// RequestError where there is no such type.
std::vector<graph::KvType> kv_types(const TypeNames& names, size_t layers);

// The name of the type of all layers; the distinct ones, joined by +, where they have several.
std::string kv_type_name(const std::vector<graph::KvType>& types);

}  // namespace oxibonsai::bindings
