#pragma once

// The ops of a graph: one struct each, in the file of its family, with
//   kName        for messages and prints,
//   inputs()     pointers to the values that it reads,
//   outputs()    pointers to the values that it makes,
//   infer()      its check, which returns what it makes.
// Every consumer visits the variant, so that an op that one of them forgets does not compile.

#include <type_traits>
#include <variant>

#include "graph/attention.h"
#include "graph/conv2d.h"
#include "graph/elementwise.h"
#include "graph/experts.h"
#include "graph/gather.h"
#include "graph/linear.h"
#include "graph/modulation.h"
#include "graph/norm.h"
#include "graph/recurrence.h"
#include "graph/rope.h"
#include "graph/rows.h"

namespace oxibonsai::graph {

using Op =
    std::variant<Embed, EmbedPositions, Input, InsertRows, SelectOutputs, RmsNorm, LayerNorm,
                 Linear, RoundInt8, Hadamard, Observe, RopeTable, Rope, StoreKv, PrepareHeads,
                 Attend, AttendLocal, Gated, Activate, Add, AddVector, Scale, Xielu, Clamp, Softcap,
                 Route, Dispatch, ExpertLinear, Combine, GateRows, Conv1d, GatedDelta, Mamba2Scan,
                 MambaScan, Wkv7Scan, SelectColumns, TransposeHeads, JoinHeads, HeadLinear,
                 JoinRows, SplitRows, Sinusoids, Modulate, AddGated, GroupMoments, Conv2d, MixParts,
                 MatchRms, KeepLargest, Gather>;

// Whether ops of a kind use a layer of the cache, or an entry of the slots.
template <class T, class = void>
constexpr bool kUsesPages = false;
template <class T>
constexpr bool kUsesPages<T, std::void_t<decltype(T::layer)>> = true;
template <class T, class = void>
constexpr bool kUsesSlot = false;
template <class T>
constexpr bool kUsesSlot<T, std::void_t<decltype(T::slot)>> = true;

const char* name_of(const Op& op);
std::vector<ValueId> inputs_of(Op op);
std::vector<ValueId> outputs_of(Op op);
// The matrices that a device packs for the op.
Weights matrices_of(const Op& op);

}  // namespace oxibonsai::graph
