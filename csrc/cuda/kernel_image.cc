#include "cuda/kernel_image.h"

#include <string_view>

#include "cuda/nvrtc.h"
#include "gpu/embedded_kernels.h"
#include "gpu/image_cache.h"

namespace oxibonsai::cuda {
namespace {

using Image = std::vector<uint8_t>;

std::string kept_name(const Driver& driver, int generation) {
  return "sm_" + std::to_string(generation) + "-driver_" + std::to_string(driver.version) + "-" +
         std::string(gpu::kernel_digest()) + ".cubin";
}

// The newest embedded PTX that the card can run; null where there is none.
const gpu::EmbeddedPtx* ptx_for(int generation) {
  const gpu::EmbeddedPtx* best = nullptr;
  for (const gpu::EmbeddedPtx& ptx : gpu::embedded_ptx())
    if (ptx.generation <= generation) best = &ptx;
  return best;
}

Image assemble(const Driver& driver, std::string ptx) {
  char log[4096] = {};
  int options[] = {kJitErrorLogBuffer, kJitErrorLogBufferBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log - 1)};
  LinkHandle* link = nullptr;
  driver.check(driver.cuLinkCreate_v2(2, options, values, &link), "cuLinkCreate");
  struct Closer {
    const Driver& driver;
    LinkHandle* link;
    ~Closer() { driver.cuLinkDestroy(link); }
  } closer{driver, link};
  void* cubin = nullptr;
  size_t bytes = 0;
  Result result = driver.cuLinkAddData_v2(link, kJitInputPtx, ptx.data(), ptx.size() + 1,
                                          "oxibonsai_kernels", 0, nullptr, nullptr);
  if (result == kSuccess) result = driver.cuLinkComplete(link, &cubin, &bytes);
  if (result != kSuccess)
    throw UnsupportedError("the driver cannot assemble the embedded kernels: " +
                           driver.describe(result) + (*log != '\0' ? "; " : "") + log);
  const auto* begin = static_cast<const uint8_t*>(cubin);
  return Image(begin, begin + bytes);  // the link owns it
}

Image make(const Driver& driver, int generation, const ImageSources& sources) {
  const gpu::EmbeddedPtx* ptx = ptx_for(generation);
  std::string reason = "this build embeds no PTX";
  if (ptx != nullptr) {
    try {
      return assemble(driver, sources.unpack(ptx->compressed));
    } catch (const UnsupportedError& e) {
      reason = e.what();
    }
  }
  try {
    return compile_cubin(sources.nvrtc, std::string(gpu::kernel_source()),
                         "sm_" + std::to_string(generation));
  } catch (const Error& e) {
    throw UnsupportedError(reason + ", and the run-time compiler is of no help: " + e.what() +
                           "; pip install 'oxibonsai[cuda]'");
  }
}

}  // namespace

void load_kernel_image(const Driver& driver, int generation, const ImageSources& sources,
                       const std::function<void(const Image&)>& load) {
  const gpu::ImageCache cache(sources.folder);
  const std::string name = kept_name(driver, generation);
  const Image kept = cache.read(name);
  if (!kept.empty()) {
    try {
      return load(kept);
    } catch (const DeviceError&) {
      // Damaged, or another driver's under the same version: the one made below replaces it.
    }
  }
  const Image image = make(driver, generation, sources);
  load(image);
  cache.keep(name, image);
}

}  // namespace oxibonsai::cuda
