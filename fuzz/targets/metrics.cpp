// metrics.jsonl of a run that goes on, and the page and table made from its rows.
#include "support/target.hpp"
#include "train/run_log.hpp"
#include "train/run_report.hpp"

using namespace mhla;

fuzz::Inputs fuzz::seeds() {
  return {
      bytes_of("{\"step\":1,\"epoch\":0.1,\"loss\":2.5,\"grad_norm\":1.0,\"lr\":0.001,\"images_per_second\":10.0}\n"
               "{\"step\":2,\"epoch\":0.2,\"loss\":null,\"grad_norm\":null,\"lr\":0.001,\"images_per_second\":10.0}\n"
               "{\"step\":2,\"epoch\":0.2,\"seconds\":4.0,\"val/top1\":0.25,\"val/loss\":2.0}\n"
               "{\"step\":3,\"epoch\":0.3,\"lo")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::File file(".jsonl");
  const auto& path = file.with(fuzz::bytes_of(data, size));
  fuzz::runs_or_names({file.name()}, [&] {
    const std::vector<io::Json> rows = train::read_metrics(path, 1000);
    for (const io::Json& row : rows) fuzz::expect(row.at("step").get<std::int64_t>() <= 1000, "a row of a later step");
    fuzz::expect(!train::run_page(rows, {{"title", "run"}}, "/nowhere").empty(), "no page");
  });
  return 0;
}
