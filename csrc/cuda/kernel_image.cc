#include "cuda/kernel_image.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/os/os.h"
#include "cuda/nvrtc.h"
#include "gpu/embedded_kernels.h"

namespace oxibonsai::cuda {
namespace {

namespace fs = std::filesystem;
using Image = std::vector<uint8_t>;

fs::path kept_path(const Driver& driver, int generation, const std::string& folder) {
  return fs::u8path(folder) /
         ("sm_" + std::to_string(generation) + "-driver_" + std::to_string(driver.version) + "-" +
          std::string(gpu::kernel_digest()) + ".cubin");
}

Image read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Image(std::istreambuf_iterator<char>(file), {});
}

// A folder that can't be written costs only the time to make the image again.
void keep(const fs::path& path, const Image& image) {
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  fs::path part = path;
  part += "." + std::to_string(os::process_id()) + ".part";
  std::ofstream file(part, std::ios::binary);
  file.write(reinterpret_cast<const char*>(image.data()),
             static_cast<std::streamsize>(image.size()));
  file.close();
  if (file)
    fs::rename(part, path, ignored);
  else
    fs::remove(part, ignored);
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
  fs::path path;
  if (!sources.folder.empty()) {
    path = kept_path(driver, generation, sources.folder);
    const Image kept = read(path);
    if (!kept.empty()) {
      try {
        return load(kept);
      } catch (const DeviceError&) {
        // Damaged, or another driver's under the same version: the one made below replaces it.
      }
    }
  }
  const Image image = make(driver, generation, sources);
  load(image);
  if (!path.empty()) keep(path, image);
}

}  // namespace oxibonsai::cuda
