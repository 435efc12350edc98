#pragma once

// Ops of a lowered graph that become one, so that what is between them need not go through memory,
// and on GPUs a launch is saved.

#include "graph/lowering.h"

namespace oxibonsai::graph {

// Whether all devices let the op write its result as int8.
bool rounds_itself(const Op& op);

// Joins a rounding to the op that makes its input, where nothing else reads that. Attention joins
// only where heads are whole groups of 32.
void fuse_rounding(LoweredGraph* g, bool attention_rounds);

// Joins norms of the heads of q and k, their rotation and store_kv to PrepareHeads, where nothing
// else reads what is between them. The norms may be missing.
void fuse_heads(LoweredGraph* g, const StateSpec& state);

}  // namespace oxibonsai::graph
