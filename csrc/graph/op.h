#pragma once

// The ops of a graph: one struct each, in the file of its family, with
//   kName        for messages and prints,
//   kDoc         the docstring of the method of this name that Python's Graph has for it; an op
//                without one has no such method,
//   fields(f)    its members, each once, in the order of the method's arguments: f.reads() a value,
//                f.takes() a constant, f.state() a layer of the cache or an entry of the slots,
//                f.makes() a value,
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

using OpVariant =
    std::variant<Embed, EmbedPositions, Input, InsertRows, SelectOutputs, RmsNorm, LayerNorm,
                 Linear, RoundInt8, Hadamard, Observe, RopeTable, Rope, StoreKv, PrepareHeads,
                 Attend, AttendLocal, Gated, Activate, Add, AddVector, Scale, Xielu, Clamp, Softcap,
                 Route, Dispatch, ExpertLinear, Combine, GateRows, Conv1d, GatedDelta, Mamba2Scan,
                 MambaScan, Wkv7Scan, SelectColumns, TransposeHeads, JoinHeads, HeadLinear,
                 JoinRows, SplitRows, Sinusoids, Modulate, AddGated, GroupMoments, Conv2d, MixParts,
                 MatchRms, GaussianTopK, Gather>;

template <class T, class Variant>
constexpr bool kIsAlternative = false;
template <class T, class... All>
constexpr bool kIsAlternative<T, std::variant<All...>> = (std::is_same_v<T, All> || ...);

// One of the ops. A compiler needs seconds for the copies, moves and destructors of a variant of
// fifty structs: they are in graph.cc, and not in every file that holds ops.
class Op : public OpVariant {
 public:
  template <class T, class = std::enable_if_t<kIsAlternative<std::decay_t<T>, OpVariant>>>
  Op(T&& op) : OpVariant(std::in_place_type<std::decay_t<T>>, std::forward<T>(op)) {}
  Op(const Op&);
  Op(Op&&) noexcept;
  Op& operator=(const Op&);
  Op& operator=(Op&&) noexcept;
  ~Op();

  // std::visit of a class derived from a variant needs gcc 11.
  template <class F>
  decltype(auto) visit(F&& f) const {
    return std::visit(std::forward<F>(f), static_cast<const OpVariant&>(*this));
  }
  template <class F>
  decltype(auto) visit(F&& f) {
    return std::visit(std::forward<F>(f), static_cast<OpVariant&>(*this));
  }
};

template <class... Ts>
bool is_any(const Op& op) {
  return (std::holds_alternative<Ts>(op) || ...);
}

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
// Pointers to the values that an op reads and makes, to replace them.
std::vector<ValueId*> inputs_in(Op* op);
std::vector<ValueId*> outputs_in(Op* op);
std::vector<ValueId> inputs_of(const Op& op);
std::vector<ValueId> outputs_of(const Op& op);
// The matrices that a device packs for the op.
Weights matrices_of(const Op& op);

}  // namespace oxibonsai::graph
