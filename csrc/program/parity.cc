#include "program/parity.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <tuple>

#include "base/threefry.h"
#include "cpu/kv_layout.h"
#include "cpu/quantized_rows.h"
#include "quant/split.h"

namespace oxibonsai::program {
namespace {

using cpu::KernelTable;
using Floats = std::vector<float>;

// One token, few, and more than a tier takes at once.
constexpr int kTokenCounts[] = {1, 3, 9};
// Rows of a slice: more than a tile of any tier.
constexpr int64_t kSliceRows = 80;

// Numbers that look like activations: a sum of uniform ones, with a few large.
Floats activations(int64_t count, uint32_t seed) {
  Floats x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) {
    const Words2 words = threefry2x32({seed, 0}, {static_cast<uint32_t>(i), 0});
    const auto uniform = [](uint32_t w) { return static_cast<float>(w >> 8) * 0x1p-24f - 0.5f; };
    x[i] = (uniform(words.a) + uniform(words.b)) * (i % 61 == 0 ? 16.0f : 1.0f);
  }
  return x;
}

// Calls a kernel of both tiers on buffers of their own, and compares what they wrote.
class Comparison {
 public:
  Comparison(const KernelTable& tier, const KernelTable& definition)
      : tier_(tier), definition_(definition) {}

  // run(table, y) writes y, which starts as `before`.
  void same(const std::string& what, const Floats& before,
            const std::function<void(const KernelTable&, float*)>& run) {
    Floats got = before;
    Floats wanted = before;
    run(tier_, got.data());
    run(definition_, wanted.data());
    if (std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) != 0)
      differences_.push_back(what);
  }

  std::vector<std::string> take() { return std::move(differences_); }

 private:
  const KernelTable& tier_;
  const KernelTable& definition_;
  std::vector<std::string> differences_;
};

void run_linear(const KernelTable& table, const ops::Weight& w, const Floats& x, int64_t tokens,
                int64_t first, int64_t last, float* y) {
  cpu::LinearArgs a{};
  const cpu::LinearKernel& kernel = w.bind(table, &a);
  std::optional<cpu::RoundedRows> rounded;
  if (quant::is_integer(w.type()))
    a.x = rounded.emplace(table, x.data(), tokens, w.cols(), cpu::reads_tables(kernel)).values();
  a.xf = x.data();
  a.first = first;
  a.last = last;
  a.last_token = tokens;
  a.stride = last - first;
  a.y = y - first;
  kernel.run(a);
}

// The first rows, and the last, which end in a part of a tile.
void compare_linear(const ops::Weight& w, Comparison& c) {
  const int64_t tail = std::max<int64_t>(0, (w.rows() - kSliceRows) / 64 * 64);
  for (const int tokens : kTokenCounts) {
    const Floats x = activations(tokens * w.cols(), 1);
    for (const int64_t first : std::set<int64_t>{0, tail}) {
      const int64_t last = first == tail ? w.rows() : std::min(w.rows(), kSliceRows);
      c.same("linear layer, " + std::string(quant::traits(w.type()).name) + " (" + w.name() + ")",
             Floats(static_cast<size_t>(tokens * (last - first))),
             [&](const KernelTable& table, float* y) {
               run_linear(table, w, x, tokens, first, last, y);
             });
    }
  }
}

void compare_norm(const Op& op, Comparison& c) {
  const auto n = static_cast<int64_t>(op.vectors[0]->size());
  const Floats x = activations(n, 2);
  const bool rms = op.kind == OpKind::kRmsNorm;
  c.same(rms ? "RMSNorm" : "LayerNorm", x, [&](const KernelTable& table, float* y) {
    const float* w = op.vectors[0]->data();
    if (rms) return table.rms_norm(x.data(), w, n, op.eps, 0, n, y);
    const auto* shift = op.vectors[1].get();
    table.layer_norm(x.data(), w, shift != nullptr ? shift->data() : nullptr, n, op.eps, y);
  });
}

void compare_rope(const Op& op, int pairs, Comparison& c) {
  const Floats angles = activations(2 * pairs, 3);
  c.same("rotary embedding", activations(op.head_dim, 4), [&](const KernelTable& table, float* y) {
    const cpu::RopeArgs a{y, angles.data(), angles.data() + pairs, 1, op.head_dim, pairs};
    (op.interleaved ? table.rope_pairs : table.rope_halves)(a);
  });
}

void compare_hadamard(const Op& op, int64_t width, Comparison& c) {
  const Floats x = activations(width, 10);
  c.same("Hadamard transform", Floats(x.size()), [&](const KernelTable& table, float* y) {
    table.hadamard({x.data(), nullptr, nullptr, width, width / op.groups, y});
  });
}

constexpr int kParityPages = 2;

// Pages of keys and values, as a tier writes them.
std::vector<std::vector<uint8_t>> written_pages(const KernelTable& table,
                                                const cpu::KvLayout& layout) {
  constexpr int kSlots = kParityPages * cpu::kPageSlots;
  const int dim = layout.head_dim;
  const Floats keys = activations(static_cast<int64_t>(kSlots) * dim, 6);
  const Floats values = activations(static_cast<int64_t>(kSlots) * dim, 9);
  std::vector<std::vector<uint8_t>> blocks;  // keys, values, keys ...
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slot % cpu::kPageSlots == 0) {
      blocks.emplace_back(static_cast<size_t>(layout.key_bytes));
      blocks.emplace_back(static_cast<size_t>(layout.value_bytes));
    }
    cpu::write_kv_slot(table, layout, slot % cpu::kPageSlots, &keys[slot * dim],
                       &values[slot * dim], blocks[blocks.size() - 2].data(), blocks.back().data());
  }
  return blocks;
}

void compare_attention(const Op& op, cpu::KvType type, Comparison& c) {
  const cpu::KvLayout layout = cpu::kv_layout(type, op.head_dim);
  const Floats q = activations(static_cast<int64_t>(cpu::kMaxQueries) * op.head_dim, 5);
  const size_t queries = cpu::kMaxQueries;
  const size_t stride = static_cast<size_t>(layout.value_stride);
  const std::string name = cpu::kKvTypeNames[static_cast<size_t>(type)];
  c.same("attention, " + name + " cache", Floats(queries * (stride + 2)),
         [&](const KernelTable& table, float* y) {
           const auto blocks = written_pages(table, layout);
           const uint8_t* keys[kParityPages];
           const uint8_t* values[kParityPages];
           for (size_t i = 0; i < kParityPages; ++i) {
             keys[i] = blocks[2 * i].data();
             values[i] = blocks[2 * i + 1].data();
           }
           cpu::AttendArgs a{};
           for (a.queries = 0; a.queries < cpu::kMaxQueries; ++a.queries) {
             a.q[a.queries] = q.data() + a.queries * op.head_dim;
             a.first[a.queries] = op.window > 0 ? a.queries : 0;
             a.last[a.queries] = 90 + a.queries;
           }
           a.kv = layout;
           a.keys = keys;
           a.values = values;
           a.softcap = op.softcap;
           a.out = y;
           a.top = y + queries * stride;
           a.mass = a.top + queries;
           table.attend(a);
         });
}

void compare_elementwise(const Op& op, int64_t width, Comparison& c) {
  const Floats a = activations(width, 7);
  const Floats b = activations(width, 8);
  const auto same = [&](const char* what, const auto& run) {
    c.same(what, Floats(a.size()), [&](const KernelTable& table, float* y) { run(table, y); });
  };
  switch (op.kind) {
    case OpKind::kSwiglu:
      return same("SwiGLU", [&](auto& t, float* y) { t.swiglu(a.data(), b.data(), width, y); });
    case OpKind::kGeglu:
      return same("GeGLU", [&](auto& t, float* y) { t.geglu(a.data(), b.data(), width, y); });
    case OpKind::kGelu:
      return same("GELU", [&](auto& t, float* y) { t.gelu(a.data(), width, y); });
    case OpKind::kAdd:
      return same("addition", [&](auto& t, float* y) { t.add(a.data(), b.data(), width, y); });
    case OpKind::kScale:
      return same("scaling", [&](auto& t, float* y) { t.scale(a.data(), op.scale, width, y); });
    default:
      return same("soft-cap",
                  [&](auto& t, float* y) { t.softcap(a.data(), op.softcap, width, y); });
  }
}

}  // namespace

std::vector<std::string> compare_kernels(const std::vector<Op>& ops, const std::vector<Slot>& slots,
                                         const KernelTable& tier, const KernelTable& definition) {
  Comparison c(tier, definition);
  // One operation of each kind, width and shape, one matrix of each type and width.
  std::set<std::tuple<int, int64_t, int64_t>> seen;
  for (const Op& op : ops) {
    const auto kind = static_cast<int>(op.kind);
    const int slot = op.out.empty() ? op.in[0] : op.out[0];
    const int64_t width = slots[slot].width;
    if (op.kind == OpKind::kLinear) {
      for (const auto& w : op.weights)
        if (seen.insert({kind, static_cast<int64_t>(w->type()), w->cols()}).second)
          compare_linear(*w, c);
      continue;
    }
    if (!seen.insert({kind, width, op.groups}).second) continue;
    switch (op.kind) {
      case OpKind::kRmsNorm:
      case OpKind::kLayerNorm:
        compare_norm(op, c);
        break;
      case OpKind::kRope:
        compare_rope(op, static_cast<int>(slots[op.in[1]].width / 2), c);
        break;
      case OpKind::kHadamard:
        compare_hadamard(op, width, c);
        break;
      case OpKind::kAttention:
        for (size_t type = 0; type < cpu::kKvTypeNames.size(); ++type)
          compare_attention(op, static_cast<cpu::KvType>(type), c);
        break;
      case OpKind::kSwiglu:
      case OpKind::kGeglu:
      case OpKind::kGelu:
      case OpKind::kAdd:
      case OpKind::kScale:
      case OpKind::kSoftcap:
        compare_elementwise(op, width, c);
        break;
      default:
        break;  // copies, and the rounding that every linear layer above has done
    }
  }
  return c.take();
}

}  // namespace oxibonsai::program
