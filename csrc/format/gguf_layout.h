#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/gguf.h"

namespace oxibonsai::format {

// Gives every tensor of id 42 its type and size (docs/formats.md): first the group, 64 or 128, from
// the gaps between tensors, then for 128 the place of the scale, from the contents of the blocks.
// Offsets are still relative to `data`, which holds `room` bytes. `forced` names a layout to take
// instead. UnsupportedError, naming --quant-type, where the file leaves it open.
void resolve_two_bit_layout(std::vector<TensorInfo>* tensors, uint64_t alignment, uint64_t room,
                            const uint8_t* data, const std::string& forced);

}  // namespace oxibonsai::format
