// `mhla serve` with a real client: serve_client.py, over loopback.
#include <gtest/gtest.h>

#include "support/program.hpp"
#include "support/small_language_model.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::testing {
namespace {

TEST(Serve, KeepsItsPromisesToAClient) {
  const TemporaryFolder folder;
  save_small_language_model(folder / "small");
  const Finished client = run_command(std::string("'") + MHLA_PYTHON + "' '" + MHLA_SERVE_CLIENT + "' --program '" +
                                      MHLA_PROGRAM + "' --model '" + (folder / "small").string() + "' 2>&1");
  EXPECT_EQ(client.exit_code, 0) << client.out;
}

TEST(Serve, RefusesWhatCannotBe) {
  const Finished port = run_mhla("serve --port 70000 2>&1");
  EXPECT_EQ(port.exit_code, 2);
  EXPECT_NE(port.out.find("--port"), std::string::npos) << port.out;
  const TemporaryFolder folder;
  save_small_language_model(folder / "small");
  const Finished host = run_mhla("serve --model '" + (folder / "small").string() + "' --host 192.0.2.1 --port 0 2>&1");
  EXPECT_EQ(host.exit_code, 1);
  EXPECT_NE(host.out.find("--host is 192.0.2.1"), std::string::npos) << host.out;
}

}  // namespace
}  // namespace mhla::testing
