#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/image_cache.h"
#include "opencl/devices.h"

namespace oxibonsai::opencl {

// The kernels of a device, each compiled when it is first launched: drivers take seconds for one,
// and minutes for all. The machine code is kept in a folder.
class Programs {
 public:
  // `unpack` unpacks xz. UnsupportedError where this build embeds no SPIR-V.
  Programs(const Driver& driver, const DeviceInfo& device, ContextHandle* context,
           const std::string& folder, const std::function<std::string(std::string_view)>& unpack);
  ~Programs();
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;

  // A kernel for blocks of so many threads. DeviceError where the driver compiles it in a way in
  // which it can't be launched.
  KernelHandle* get(const char* name, uint32_t threads);

 private:
  struct Kernel {
    ProgramHandle* program = nullptr;
    KernelHandle* kernel = nullptr;
    uint32_t threads = 0;  // of the blocks that were checked
  };

  Kernel make(const std::string& name) const;
  ProgramHandle* load(const std::string& name, const std::vector<uint8_t>& image) const;
  ProgramHandle* compile(const std::string& name) const;
  std::vector<uint8_t> image_of(ProgramHandle* program) const;
  void check_launch(const std::string& name, KernelHandle* kernel, size_t threads) const;

  const Driver& driver_;
  const DeviceInfo device_;
  ContextHandle* const context_;
  const gpu::ImageCache cache_;
  const std::string modules_;                                       // of all kernels
  std::map<std::string, std::string_view, std::less<>> module_of_;  // parts of modules_
  std::map<std::string, Kernel, std::less<>> kernels_;
};

}  // namespace oxibonsai::opencl
