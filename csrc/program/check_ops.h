#pragma once

#include <vector>

#include "program/kv_pages.h"
#include "program/op.h"

namespace oxibonsai::program {

// RequestError, naming the operation, where a slot, a weight or a vector doesn't fit it: after this
// no operation reads or writes outside its buffers.
void check_ops(const std::vector<Op>& ops, const std::vector<Slot>& slots);

// RequestError where the cache has another shape than the program's attention.
void check_cache(const std::vector<Op>& ops, const KvPages& pages);

}  // namespace oxibonsai::program
