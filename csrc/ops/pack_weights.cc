#include "ops/pack_weights.h"

#include <algorithm>
#include <set>

#include "base/huge_buffer.h"

namespace oxibonsai::ops {
namespace {

// Bytes of a file that a thread packs before it gives them back.
constexpr int64_t kPieceBytes = 1 << 20;

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Weights that want packing, each once.
Weights unpacked(const Weights& weights) {
  Weights result;
  std::set<const Weight*> seen;
  for (const auto& w : weights)
    if (!w->packed() && seen.insert(w.get()).second) result.push_back(w);
  return result;
}

void pack_one(const Weight& w, const cpu::KernelTable& table, ThreadPool& pool, uint8_t* tiles) {
  const int64_t rows = Weight::rows_in_piece(table.linear[static_cast<int>(w.type())]);
  const int64_t count = (w.rows() + rows - 1) / rows;
  const int64_t piece =
      std::max<int64_t>(1, std::min(count / pool.size(), kPieceBytes * count / w.bytes()));
  pool.for_each(count, piece,
                [&](int64_t first, int64_t last) { w.write_tiles(table, first, last, tiles); });
}

}  // namespace

void pack_weights(const Weights& weights, const cpu::KernelTable& table, ThreadPool& pool,
                  const std::function<void(int64_t)>& progress) {
  const Weights todo = unpacked(weights);
  int64_t total = 0;
  for (const auto& w : todo) total += aligned(w->tiles_bytes(table));
  const auto memory = std::make_shared<HugeBuffer>(static_cast<size_t>(total));
  int64_t at = 0;
  for (const auto& w : todo) {
    pack_one(*w, table, pool, memory->data() + at);
    at += aligned(w->tiles_bytes(table));
    progress(at);
  }
  at = 0;
  for (const auto& w : todo) {
    w->use_tiles(table, memory->data() + at, memory);
    at += aligned(w->tiles_bytes(table));
  }
}

}  // namespace oxibonsai::ops
