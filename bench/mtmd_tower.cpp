// A C interface to the vision towers of llama.cpp's mtmd, for bench/mtmd.py: the same pixels in,
// rows out. Compiled together with clip.cpp and models/*.cpp of llama.cpp's tools/mtmd.

#include <algorithm>
#include <exception>
#include <vector>

#include "clip-impl.h"
#include "clip.h"
#include "ggml-backend.h"

extern "C" {

// nullptr where the file can't be opened.
void* mtmd_tower_open(const char* path) {
  g_logger_state.log_callback = [](ggml_log_level, const char*, void*) {};
  clip_context_params params = {};
  params.flash_attn_type = CLIP_FLASH_ATTN_TYPE_AUTO;
  params.image_min_tokens = -1;
  params.image_max_tokens = -1;
  try {
    return clip_init(path, params).ctx_v;
  } catch (const std::exception&) {
    return nullptr;
  }
}

int mtmd_tower_width(void* tower) { return clip_n_mmproj_embd(static_cast<clip_ctx*>(tower)); }

// pixels: [height, width, 3], normalised. Returns how many floats the rows have, of which at most
// `capacity` are copied; -1 where encoding fails.
long mtmd_tower_encode(void* tower, int threads, const float* pixels, int width, int height,
                       float* rows, long capacity) {
  clip_image_f32 image;
  image.set_size({width, height}, false, false);
  image.cpy_buf(std::vector<float>(pixels, pixels + size_t{3} * width * height));
  auto* context = static_cast<clip_ctx*>(tower);
  std::vector<float> found(size_t(clip_n_output_tokens(context, &image)) *
                           clip_n_mmproj_embd(context));
  try {
    if (!clip_image_encode(context, threads, &image, found)) return -1;
  } catch (const std::exception&) {
    return -1;
  }
  const long count = static_cast<long>(found.size());
  std::copy_n(found.data(), std::min(count, capacity), rows);
  return count;
}

void mtmd_tower_close(void* tower) { clip_free(static_cast<clip_ctx*>(tower)); }
}
