#pragma once

// The ops of a graph: one struct each, in the file of its family, with
//   kName        for messages and prints,
//   inputs()     pointers to the values that it reads,
//   outputs()    pointers to the values that it makes,
//   infer()      its check, which returns what it makes.
// Every consumer visits the variant, so that an op that one of them forgets does not compile.

#include <variant>

#include "graph/attention.h"
#include "graph/elementwise.h"
#include "graph/experts.h"
#include "graph/linear.h"
#include "graph/norm.h"
#include "graph/recurrence.h"
#include "graph/rope.h"
#include "graph/rows.h"

namespace oxibonsai::graph {

using Op =
    std::variant<Embed, EmbedPositions, Input, SelectOutputs, RmsNorm, LayerNorm, Linear, RoundInt8,
                 Hadamard, Observe, RopeTable, Rope, StoreKv, Attend, AttendLocal, Gated, Activate,
                 Add, AddVector, Scale, Xielu, Clamp, Softcap, Route, Dispatch, ExpertLinear,
                 Combine, GateRows, Conv1d, GatedDelta, Mamba2Scan, MambaScan, SelectColumns,
                 TransposeHeads, JoinHeads, HeadLinear, MixParts, MatchRms, KeepLargest>;

const char* name_of(const Op& op);
std::vector<ValueId> inputs_of(Op op);
std::vector<ValueId> outputs_of(Op op);
// The matrices that a device packs for the op.
Weights matrices_of(const Op& op);

}  // namespace oxibonsai::graph
