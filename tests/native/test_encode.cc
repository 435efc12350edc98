// Blocks are joined as they are split, and encoders give the same bytes on every machine.

#include "base/threefry.h"
#include "blocks.h"
#include "check.h"
#include "quant/encode.h"
#include "quant/pack.h"

using namespace oxibonsai;
using namespace oxibonsai::quant;

namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 1024;

// 64-bit FNV-1a hashes of the blocks without importance and with it.
struct Digest {
  QuantType type;
  uint64_t plain, weighted;
};

constexpr Digest kDigests[] = {
    {QuantType::kF32, 0x320D3F83EEB565FCu, 0x320D3F83EEB565FCu},
    {QuantType::kF16, 0x3EB946C01975F019u, 0x3EB946C01975F019u},
    {QuantType::kBF16, 0x389256DE7356211Fu, 0x389256DE7356211Fu},
    {QuantType::kQ8_0, 0xC759A0DD19ADBD58u, 0xC759A0DD19ADBD58u},
    {QuantType::kQ4_0, 0x9611C97F34D0E210u, 0xA2CB8F1DDF1AF56Eu},
    {QuantType::kQ4_1, 0x92209BA373E8A2EEu, 0xC74B6D3581DAFCFDu},
    {QuantType::kQ5_0, 0xF685C1A8886203D7u, 0xDD878370CFB7C823u},
    {QuantType::kQ5_1, 0x282E4D12251B5B29u, 0xD12256D588928F7Fu},
    {QuantType::kQ4_K, 0x07C0D06BBE3F5ADFu, 0xEF64010CFAF50E3Bu},
    {QuantType::kQ5_K, 0xCAFB47BC7D053BD3u, 0xFAA10CFC69492F8Bu},
    {QuantType::kQ6_K, 0x874D079A626FA197u, 0x2505A9D3C8EE3D64u},
    {QuantType::kQ1_0, 0x22C14EE2E838F601u, 0x22C14EE2E838F601u},
    {QuantType::kQ2_0_g64, 0x29BFFD9A5DF2343Fu, 0x29BFFD9A5DF2343Fu},
    {QuantType::kQ2_0_g128, 0x6DCF8A4EB1D6D5E6u, 0x6DCF8A4EB1D6D5E6u},
    {QuantType::kPTQ1_0, 0x8ABE85537645DCB5u, 0x8ABE85537645DCB5u},
    {QuantType::kTQ2_0_g128, 0xED07E35D7DBFA532u, 0xED07E35D7DBFA532u},
    {QuantType::kTQ1_0, 0x719DA7BE4572B82Cu, 0x719DA7BE4572B82Cu},
    {QuantType::kTQ2_0, 0x4960131B86E9009Fu, 0x4960131B86E9009Fu},
    {QuantType::kQ8_1, 0xE0E74C671BD2B2D7u, 0xE0E74C671BD2B2D7u},
    {QuantType::kQ8_K, 0x176FAA847F7DEEFFu, 0x176FAA847F7DEEFFu},
    {QuantType::kQ2_K, 0x9A01758844976051u, 0x478D529D3688FB72u},
    {QuantType::kQ3_K, 0x5DC5B3D66F46EE87u, 0xE422EE61D369ED8Bu},
    {QuantType::kIQ4_NL, 0x2D4FB7EB4A2647DAu, 0x734D00D76D841531u},
    {QuantType::kIQ4_XS, 0xE608C0B1EC2E8EB9u, 0x60B637DDBA0DEB7Eu},
    {QuantType::kMXFP4, 0x2ADFA682B66DDE7Cu, 0x0833621C9F1EB5D7u},
    {QuantType::kNVFP4, 0xC28840D7D8F2C8DEu, 0x5CDFEAAA62A6C90Au},
    {QuantType::kF8_E4M3, 0x729CD8A717D011E7u, 0x729CD8A717D011E7u},
    {QuantType::kF8_E5M2, 0x31576F9959D308DEu, 0x31576F9959D308DEu},
};

BlockParts parts_of(QuantType type, const uint8_t* block) {
  BlockParts parts;
  std::memset(&parts, 0, sizeof parts);
  unpack_block(type, block, &parts);
  return parts;
}

void check_join(std::mt19937& random, QuantType type) {
  const QuantTraits& t = traits(type);
  const auto bytes = test::random_rows(random, type, 20, t.group);
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(t.bytes)) {
    const BlockParts parts = parts_of(type, &bytes[at]);
    std::vector<uint8_t> joined(static_cast<size_t>(t.bytes));
    pack_block(type, parts, joined.data());
    const BlockParts again = parts_of(type, joined.data());
    CHECK(std::memcmp(&parts, &again, sizeof parts) == 0, t.name);
  }
}

uint32_t random_word(uint32_t index) { return threefry2x32(threefry_key(8), {index, 0}).a; }

// Bell-shaped, with outliers, and a group of zeros at the end: sums of integers, exact anywhere.
std::vector<float> make_values() {
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t a = random_word(static_cast<uint32_t>(2 * i));
    const uint32_t b = random_word(static_cast<uint32_t>(2 * i + 1));
    const auto sum = static_cast<int32_t>((a & 0xFFFF) + (a >> 16) + (b & 0xFFFF) + (b >> 16));
    values[i] = static_cast<float>(sum - 131070) / 1048576.0f;
    if (a % 97 == 0) values[i] *= 8.0f;
    if (i + 256 >= values.size()) values[i] = 0.0f;
  }
  return values;
}

std::vector<float> make_importance() {
  std::vector<float> importance(kCols);
  for (size_t i = 0; i < importance.size(); ++i)
    importance[i] = static_cast<float>(random_word(static_cast<uint32_t>(i)) % 1000);
  return importance;
}

uint64_t hash(const std::vector<uint8_t>& bytes) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const uint8_t b : bytes) h = (h ^ b) * 0x100000001B3u;
  return h;
}

uint64_t encoded(QuantType type, const float* importance, int threads) {
  const auto values = make_values();
  ThreadPool pool(threads);
  std::vector<uint8_t> blocks(static_cast<size_t>(kRows * row_bytes(type, kCols)));
  encode(type, values.data(), kRows, kCols, importance, pool, blocks.data());
  return hash(blocks);
}

void check_digest(const Digest& expected) {
  const std::string name = traits(expected.type).name;
  const auto importance = make_importance();
  const uint64_t plain = encoded(expected.type, nullptr, 1);
  const uint64_t weighted = encoded(expected.type, importance.data(), 2);
  CHECK(plain == expected.plain, name + " without importance: " + std::to_string(plain));
  CHECK(weighted == expected.weighted, name + " with importance: " + std::to_string(weighted));
}

}  // namespace

int main() {
  std::mt19937 random(5);
  for (const Digest& d : kDigests) {
    check_digest(d);
    if (is_integer(d.type)) check_join(random, d.type);
  }
  return test::finish("encode");
}
