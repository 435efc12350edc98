#pragma once

// From a graph to what a device runs: inputs rounded to int8 where weights are integers, the
// rounding joined to the op before it, and a buffer for every value.

#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace oxibonsai::graph {

// Memory for values, one after the other. Its size follows from the number of rows of a step.
struct Buffer {
  RowSpace rows;
  int64_t cols;  // of the widest value
  ValueType type;
};

struct LoweredGraph {
  std::vector<Op> ops;
  std::vector<Value> values;  // of the graph, in its order, then those of the rounding
  std::vector<Buffer> buffers;
  std::vector<RowSpace> spaces;  // of the buffers, each once
  std::vector<int> space_of;     // by buffer: index into spaces
  std::vector<int> buffer_of;    // by value; -1 where no op reads or makes it
  std::vector<std::pair<std::string, ValueId>> outputs;  // each in a buffer of its own
  std::vector<std::pair<std::string, int64_t>> output_columns;
  std::vector<std::pair<std::string, ValueId>> inputs;  // likewise, never written
};

// What a device can run as one op besides what all can (graph/fusion.h).
struct Fusions {
  bool attention_rounds = false;  // attention and the rounding of its result
  bool prepare_heads = false;     // PrepareHeads
};

// Rounding goes before each op that reads integers, once for all that share an input. An op that
// can round its own result does so where nobody else reads it: its output then is kInt8. Ops that
// read no value (embeddings, rope tables) go first: on GPUs the host makes those values, and
// between all that follows there is no transfer. A value gets the buffer of one that nobody reads
// any more, if that has the same rows and type (a rounded value also the same columns); the buffer
// is as wide as the widest value in it, and a narrower one has its rows next to each other at the
// begin. A rotation, alone or in PrepareHeads, or an activation may get the buffer of what it
// reads. RequestError where the graph has no output.
LoweredGraph lower(const Graph& graph, const Fusions& fusions = {});

}  // namespace oxibonsai::graph
