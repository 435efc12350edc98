#include "bindings/kv_types.h"

#include <algorithm>

#include "base/check.h"

namespace oxibonsai::bindings {
namespace {

using graph::kKvTypeNames;
using graph::KvType;

KvType kv_type(const std::string& name) {
  const auto found = std::find(kKvTypeNames.begin(), kKvTypeNames.end(), name);
  if (found == kKvTypeNames.end())
    throw RequestError("KV type " + name +
                       " does not exist; there are f32, f16, q8_0, q4_0 and fp8_e4m3");
  return static_cast<KvType>(found - kKvTypeNames.begin());
}

}  // namespace

std::vector<KvType> kv_types(const TypeNames& names, size_t layers) {
  if (const auto* one = std::get_if<std::string>(&names))
    return std::vector<KvType>(layers, kv_type(*one));
  std::vector<KvType> types;
  for (const std::string& name : std::get<std::vector<std::string>>(names))
    types.push_back(kv_type(name));
  return types;
}

std::string kv_type_name(const std::vector<KvType>& types) {
  std::string text;
  std::vector<KvType> seen;
  for (const KvType type : types) {
    if (std::find(seen.begin(), seen.end(), type) != seen.end()) continue;
    seen.push_back(type);
    text += (text.empty() ? "" : "+") + std::string(kKvTypeNames[static_cast<size_t>(type)]);
  }
  return text;
}

}  // namespace oxibonsai::bindings
