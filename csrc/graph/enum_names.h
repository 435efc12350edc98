#pragma once

// What descriptions of a graph call the values of its ops' enums.

#include <string>
#include <vector>

#include "base/check.h"
#include "graph/op.h"

namespace oxibonsai::graph {

// In the order of the values.
struct EnumNames {
  const char* what;  // for messages
  std::vector<const char*> names;
};

inline const EnumNames& names_of(Activation) {
  static const EnumNames names{
      "activation",
      {"silu", "gelu", "gelu_tanh", "relu", "relu2", "sigmoid", "identity", "swiglu_oai"}};
  return names;
}
inline const EnumNames& names_of(KeyPart) {
  static const EnumNames names{"part of the positions", {"all", "encoded", "own"}};
  return names;
}
inline const EnumNames& names_of(QueryPart) {
  static const EnumNames names{"part of the queries", {"all", "global", "others"}};
  return names;
}
inline const EnumNames& names_of(Route::Scoring) {
  static const EnumNames names{"scoring of experts",
                               {"softmax", "softmax_of_chosen", "sigmoid", "sparse_mixer"}};
  return names;
}

// RequestError, with the names that there are, where none is `name`.
template <class Enum>
void set_by_name(const std::string& name, Enum& field) {
  const EnumNames& known = names_of(field);
  std::string all;
  for (size_t i = 0; i < known.names.size(); ++i) {
    if (name == known.names[i]) {
      field = static_cast<Enum>(i);
      return;
    }
    all += (i == 0 ? "" : i + 1 < known.names.size() ? ", " : " and ");
    all += known.names[i];
  }
  throw RequestError(std::string("no ") + known.what + " is called " + name + "; there are " + all);
}

}  // namespace oxibonsai::graph
