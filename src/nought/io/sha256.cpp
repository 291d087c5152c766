#include "nought/io/sha256.h"

#include <array>

#include <fmt/format.h>
#include <openssl/evp.h>

#include "nought/base/error.h"

namespace nought {

namespace {

EVP_MD_CTX* of(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

void Sha256::Free::operator()(void* context) const { EVP_MD_CTX_free(of(context)); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  require<DeviceError>(context_ != nullptr && EVP_DigestInit_ex(of(context_.get()), EVP_sha256(), nullptr) == 1,
                       "libcrypto refuses to compute SHA-256");
}

Sha256::~Sha256() = default;

Sha256& Sha256::add(std::span<const std::byte> bytes) {
  require<DeviceError>(EVP_DigestUpdate(of(context_.get()), bytes.data(), bytes.size()) == 1,
                       "libcrypto refuses to compute SHA-256");
  return *this;
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  require<DeviceError>(EVP_DigestFinal_ex(of(context_.get()), digest.data(), &size) == 1,
                       "libcrypto refuses to compute SHA-256");
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace nought
