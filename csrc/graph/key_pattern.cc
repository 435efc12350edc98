#include "graph/key_pattern.h"

namespace oxibonsai::graph {

bool KeyPattern::any() const { return dilation != 1 || global_tokens > 0 || block_size > 0; }

bool KeyPattern::reaches_back() const { return global_tokens > 0 || block_size > 0; }

bool KeyPattern::sees(int32_t query, int32_t key, int window, int head) const {
  if (key < global_tokens || key > query) return true;
  if (block_size == 0) return query - key < window && (query - key) % dilation == 0;
  const int32_t block = key / block_size;
  return query / block_size - block < window / block_size ||
         (block + 1 + (int64_t{first_head} + head) * head_step) % block_stride == 0;
}

}  // namespace oxibonsai::graph
