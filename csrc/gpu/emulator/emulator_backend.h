#pragma once

#include <atomic>

#include "gpu/backend.h"
#include "gpu/emulator/emulator.h"

namespace oxibonsai::gpu::emulator {

// A device whose memory is the machine's and whose kernels are emulated. Fresh memory is garbage.
class EmulatorBackend : public Backend {
 public:
  explicit EmulatorBackend(Options options = {},
                           Capabilities capabilities = {Int8Mma::k16x8x32, true},
                           int64_t memory = int64_t{4} << 30);

  std::string name() const override { return "emulator"; }
  std::string device() const override { return "emulated threads"; }
  Capabilities capabilities() const override { return capabilities_; }
  Memory memory() const override { return {memory_, memory_ - *used_}; }

  BufferPtr allocate(int64_t bytes) override;
  void upload(const void* from, Address to, int64_t bytes) override;
  void download(Address from, void* to, int64_t bytes) override;
  void copy(Address from, Address to, int64_t bytes) override;
  void fill(Address to, uint8_t value, int64_t bytes) override;
  void launch(const Launch& launch) override;
  void synchronize() override {}

 private:
  const Options options_;
  const Capabilities capabilities_;
  const int64_t memory_;
  const std::shared_ptr<std::atomic<int64_t>> used_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace oxibonsai::gpu::emulator
