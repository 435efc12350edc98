#include "program/program.h"

#include <algorithm>
#include <exception>
#include <string>

#include "base/check.h"
#include "base/work_shares.h"
#include "cpu/quantized_rows.h"
#include "ops/pack_weights.h"
#include "program/check_ops.h"
#include "program/op_runners.h"
#include "program/parity.h"
#include "program/step.h"

namespace oxibonsai::program {
namespace {

// Step::ends.
std::vector<int> sequence_ends(const Batch& b) {
  std::vector<int> ends(b.pages.size());
  for (size_t r = 0; r < b.tokens.size(); ++r)
    ends[b.sequence[r]] = std::max(ends[b.sequence[r]], b.positions[r] + 1);
  return ends;
}

// RequestError where a page table names a page or a pool that does not exist.
void check_tables(const Batch& b, const std::vector<KvPages*>& pools) {
  if (!b.pools.empty() && b.pools.size() != b.pages.size())
    throw RequestError("a batch needs one pool for each page table, or none at all");
  for (size_t i = 0; i < b.pages.size(); ++i) {
    const std::string where = " (page table " + std::to_string(i) + " of the batch)";
    const int32_t pool = b.pools.empty() ? 0 : b.pools[i];
    if (pool < 0 || static_cast<size_t>(pool) >= pools.size())
      throw RequestError("no such pool of KV pages: " + std::to_string(pool) + " of " +
                         std::to_string(pools.size()) + where);
    for (const int32_t page : b.pages[i])
      if (page < 0 || page >= pools[pool]->pages())
        throw RequestError("no such page: " + std::to_string(page) + " of " +
                           std::to_string(pools[pool]->pages()) + where);
  }
}

}  // namespace

Program::Program(std::vector<Op> ops, std::vector<Slot> slots, std::shared_ptr<ThreadPool> pool,
                 const cpu::KernelTable& table)
    : table_(table), ops_(std::move(ops)), slots_(std::move(slots)), pool_(std::move(pool)) {
  check_ops(ops_, slots_);
  result_ = ops_.back().out[0];
  vocabulary_ = ops_.front().weights[0]->rows();
  memory_.resize(slots_.size());
  ops::Weights matrices;
  for (const Op& op : ops_) {
    if (op.kind == OpKind::kPositions) positions_ = std::min(positions_, op.weights[0]->rows());
    if (op.kind != OpKind::kLinear) continue;
    matrices.insert(matrices.end(), op.weights.begin(), op.weights.end());
    for (const auto& w : op.weights)
      slots_[op.in[0]].tables |= cpu::reads_tables(table_.linear[static_cast<int>(w->type())]);
  }
  ops::pack_weights(matrices, table_, *pool_, [](int64_t) {});
}

std::vector<std::string> Program::compare_kernels_with(const cpu::KernelTable& definition) const {
  return compare_kernels(ops_, slots_, table_, definition);
}

void Program::check_batch(const Batch& b, const std::vector<KvPages*>& pools) const {
  const auto rows = static_cast<size_t>(b.rows());
  if (rows == 0) throw RequestError("a batch needs at least one row");
  if (b.positions.size() != rows || b.sequence.size() != rows)
    throw RequestError("a batch needs one position and one sequence for each token");
  for (size_t r = 0; r < rows; ++r) {
    const std::string where = " (row " + std::to_string(r) + " of the batch)";
    if (b.tokens[r] < 0 || b.tokens[r] >= vocabulary_)
      throw RequestError("token id " + std::to_string(b.tokens[r]) +
                         " is outside the vocabulary of " + std::to_string(vocabulary_) + where);
    if (b.positions[r] >= positions_)
      throw RequestError("position " + std::to_string(b.positions[r]) +
                         " is outside the table of " + std::to_string(positions_) + where);
    if (b.sequence[r] < 0 || static_cast<size_t>(b.sequence[r]) >= b.pages.size())
      throw RequestError("no such sequence" + where);
    const auto& table = b.pages[b.sequence[r]];
    if (b.positions[r] < 0 || static_cast<size_t>(b.positions[r]) >= table.size() * cpu::kPageSlots)
      throw RequestError("position " + std::to_string(b.positions[r]) + " has no page" + where);
  }
  check_tables(b, pools);
  for (const int32_t r : b.outputs)
    if (r < 0 || static_cast<size_t>(r) >= rows)
      throw RequestError("an output row is not in the batch");
}

void Program::reserve_parts(Step* step) {
  const std::vector<int32_t>& positions = step->batch->positions;
  const int longest = *std::max_element(positions.begin(), positions.end()) + 1;
  step->parts = (longest + cpu::kPartSlots - 1) / cpu::kPartSlots;
  int64_t floats = 0;
  for (const Op& op : ops_)
    if (op.kind == OpKind::kAttention) floats = std::max(floats, kept_floats(*step, op));
  if (kept_parts_.size() < static_cast<size_t>(floats)) kept_parts_.resize(floats);
  step->kept_parts = kept_parts_.data();
}

void Program::run(const Batch& batch, const std::vector<KvPages*>& pools, float* result) {
  const std::lock_guard<std::mutex> one_at_a_time(mutex_);
  for (const KvPages* pool : pools) check_cache(ops_, *pool);
  check_batch(batch, pools);
  Step step{};
  step.kernels = &table_;
  step.batch = &batch;
  step.pools = &pools;
  step.slots = &slots_;
  step.rows = batch.rows();
  step.threads = pool_->size();
  step.ends = sequence_ends(batch);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto bytes = static_cast<size_t>(slot_bytes(slots_[i], batch.rows()));
    if (memory_[i].size() < bytes) memory_[i] = AlignedBuffer(bytes);
    step.memory.push_back(memory_[i].data());
  }
  step.memory[result_] = reinterpret_cast<uint8_t*>(result);
  reserve_parts(&step);

  WorkShares shares(pool_->size());
  Barrier barrier(pool_->size());
  std::mutex error_mutex;
  std::exception_ptr error;  // a thread that fails still meets the others at every barrier
  const auto work = [&](int thread) {
    int64_t rows = batch.rows();
    unsigned phases = 0;
    for (const Op& op : ops_) {
      if (op.kind == OpKind::kSelect) rows = static_cast<int64_t>(batch.outputs.size());
      const OpRunner& r = runner(op.kind);
      for (int phase = 0; phase < r.phases; ++phase) {
        const int64_t count = r.items(step, op, rows, phase);
        if (count == 0) continue;  // for all threads alike
        try {
          for (int64_t item; (item = shares.next(phases, thread, count)) >= 0;)
            r.run(step, op, rows, phase, item);
        } catch (...) {
          const std::lock_guard<std::mutex> lock(error_mutex);
          error = std::current_exception();
        }
        shares.prepare_next(phases, thread);
        ++phases;
        barrier.wait();
      }
    }
  };
  pool_->run(work);
  if (error) std::rethrow_exception(error);
}

}  // namespace oxibonsai::program
