#pragma once

// A batch as integers, which one process sends to those that run the same step, and its pieces.

#include <cstdint>
#include <vector>

#include "graph/batch.h"

namespace oxibonsai::graph {

// UnsupportedError where the batch has more than tokens and positions: inputs, segments, a grid.
std::vector<int32_t> to_words(const Batch& batch);

// RequestError where the words are no batch.
Batch from_words(const std::vector<int32_t>& words);

// The same rows in order, as batches of `rows` rows each, the last one of what is left. One batch
// where its rows cannot be told apart so: with blocks, slots for rows, inputs, segments, or outputs
// out of order.
std::vector<Batch> pieces(const Batch& batch, int64_t rows);

}  // namespace oxibonsai::graph
