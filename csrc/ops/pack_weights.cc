#include "ops/pack_weights.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/aligned.h"
#include "base/check.h"
#include "base/huge_buffer.h"

namespace oxibonsai::ops {
namespace {

// Bytes of a file that a thread packs before it gives them back.
constexpr int64_t kPieceBytes = 1 << 20;

// Weights that no tier uses yet, each once. Those whose stored form serves are only checked.
Weights unpacked(const Weights& weights, const cpu::KernelTable& table) {
  Weights result;
  std::set<const Weight*> seen;
  for (const auto& w : weights) {
    if (w->packed() && !w->ready_for(table))
      throw RequestError(w->name() + " is packed for another tier than " + table.name);
    if (!w->packed() && seen.insert(w.get()).second) result.push_back(w);
  }
  return result;
}

int64_t total_size(const Weights& todo, const cpu::KernelTable& table) {
  int64_t total = 0;
  for (const auto& w : todo) total += aligned(w->tiles_bytes(table));
  return total;
}

void pack_one(const Weight& w, const cpu::KernelTable& table, ThreadPool& pool, uint8_t* tiles) {
  const int64_t rows = Weight::rows_in_piece(table.linear[static_cast<int>(w.type())]);
  const int64_t count = (w.rows() + rows - 1) / rows;
  const int64_t piece =
      std::max<int64_t>(1, std::min(count / pool.size(), kPieceBytes * count / w.bytes()));
  pool.for_each(count, piece,
                [&](int64_t first, int64_t last) { w.write_tiles(table, first, last, tiles); });
}

void use_tiles(const Weights& todo, const cpu::KernelTable& table, const Packed& packed) {
  int64_t at = 0;
  for (const auto& w : todo) {
    w->use_tiles(table, packed.data + at, packed.keeper);
    at += aligned(w->tiles_bytes(table));
  }
}

}  // namespace

int64_t packed_size(const Weights& weights, const cpu::KernelTable& table) {
  return total_size(unpacked(weights, table), table);
}

Packed pack_weights(const Weights& weights, const cpu::KernelTable& table, ThreadPool& pool,
                    const std::function<void(int64_t)>& progress) {
  const Weights todo = unpacked(weights, table);
  const int64_t total = total_size(todo, table);
  const auto memory = std::make_shared<HugeBuffer>(static_cast<size_t>(total));
  int64_t at = 0;
  for (const auto& w : todo) {
    pack_one(*w, table, pool, memory->data() + at);
    at += aligned(w->tiles_bytes(table));
    progress(at);
  }
  const Packed packed{memory->data(), total, memory};
  use_tiles(todo, table, packed);
  return packed;
}

void attach_weights(const Weights& weights, const cpu::KernelTable& table, const Packed& packed) {
  const Weights todo = unpacked(weights, table);
  const int64_t wanted = total_size(todo, table);
  if (packed.bytes != wanted)
    throw RequestError("packed weights have " + std::to_string(packed.bytes) + " bytes, not " +
                       std::to_string(wanted));
  use_tiles(todo, table, packed);
}

}  // namespace oxibonsai::ops
