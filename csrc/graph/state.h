#pragma once

#include <cstdint>
#include <vector>

#include "graph/kv_types.h"

namespace oxibonsai::graph {

// Keys and values that one layer keeps for each position of a sequence.
struct PagedLayer {
  int kv_heads;
  int key_dim, value_dim;  // floats of one head's key, of its value
  // A head's value is the first value_dim floats of its key, and not stored besides (latent
  // attention).
  bool value_in_key = false;

  bool operator==(const PagedLayer& o) const {
    return kv_heads == o.kv_heads && key_dim == o.key_dim && value_dim == o.value_dim &&
           value_in_key == o.value_in_key;
  }
};

// What a graph keeps between two steps of a sequence. Pages grow with the sequence; a slot has a
// fixed size and is overwritten by every step. The device makes both, the engine hands them out.
struct StateSpec {
  std::vector<PagedLayer> paged;  // by layer of the cache
  std::vector<int64_t> slot;      // floats, by entry: the recurrent state of one layer each

  int64_t slot_floats() const {
    int64_t sum = 0;
    for (const int64_t n : slot) sum += n;
    return sum;
  }
};

}  // namespace oxibonsai::graph
